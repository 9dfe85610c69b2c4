"""The answers about several ranks, and arithmetic with the rates of this machine."""

from __future__ import annotations

import math
import re
from functools import cached_property

from lmperf.names import in_order
from lmperf.reporting.frames import having, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections.course import Course, resolved
from lmperf.reporting.sections.ranks_memory import CELL, MEMORY, matched
from lmperf.reporting.words import MIB_IN_GIB, NotMeasured

# Problem -> lmperf's strategies, and what the name or function of a custom one has.
# The first that fits counts; by default a custom one overlaps single gradients.
STRATEGIES = {
    "fsdp": (["fully_sharded"], "fsdp|fully"),
    "sharded_optimizer": (["sharded_optimizer"], "shard|optim|zero"),
    "bucketed": (["bucket_1", "bucket_10", "bucket_100", "bucket_1000"], "bucket"),
    "flat": (["flat"], "flat"),
    "naive": (["one_by_one"], "naive|one_by_one|minimal"),
    "overlapped": (["overlapped"], ""),
}
RANKS = "distributed"
OF_LEDGER = ["step_ms", "communication_ms", "exposed_ms", "late_ms", "hidden_share"]
OF_LEDGER += ["calls", "sent_bytes"]
MOMENTS = ["init", "before_step", "after_step", "peak"]


class CourseRanks(Course):
    """The strategies of the subjects, by the problem that asks for them."""

    @cached_property
    def strategies(self) -> dict[str, list[str]]:
        """Problem -> the strategies of the subject that it asks for."""
        own = self.evidence.subjects(RANKS)
        if not own:
            lmperf = {} if self._is_left_out(RANKS) else STRATEGIES
            return {kind: names for kind, (names, _) in lmperf.items()}
        declared = self.evidence.declared(RANKS)
        strategies = {kind: [] for kind in STRATEGIES}
        for name in own:
            strategies[kind_of(name, declared[name].function)].append(name)
        return strategies

    @cached_property
    def steps(self) -> Rows:
        """The steps of all strategies of the subject in one cell, with what the profiler saw.

        The cell is that of most strategies; of equals two ranks, the largest size, least batch.
        """
        names = self._names(*self.strategies)
        rows = having(self.of(RANKS).steps.frame, implementation=names)
        ran = required(rows[rows["state"].isna()], "no strategy ran")
        counts = ran.groupby(CELL, sort=False)["implementation"].nunique()
        cells = counts[counts == counts.max()].reset_index()
        sizes = in_order("size", cells["size"])
        cells = cells.assign(two=cells["ranks"] != 2, place=-cells["size"].map(sizes.index))
        cell = cells.sort_values(["two", "place", "batch"], kind="stable").iloc[0][CELL]
        rows = having(rows, **cell)
        ledger = self.of(RANKS).ledger.frame
        ledger = matched(ledger[ledger["holds"]], rows)[OF_LEDGER].astype(float)
        waited = rows["ms"].where(rows["waits"])
        return self.rows(RANKS, rows.assign(waited=waited, **ledger))

    def runs(self, *problems: str) -> Rows:
        """The steps of the strategies of some problems, in their order."""
        return self.steps.kept(having(self.steps.frame, implementation=self._names(*problems)))

    def _names(self, *problems: str) -> list[str]:
        return [name for problem in problems for name in self.strategies.get(problem, ())]

    def sound(self, *problems: str) -> Rows:
        """Those on which a sentence may rest."""
        rows = self.runs(*problems)
        return rows.kept(rows.sound)

    def right(self, *problems: str) -> Rows:
        """Those that passed their check in their code of today; load does not change a result."""
        rows = self.runs(*problems)
        is_right = rows.frame["state"].isna() & ~rows.frame["key"].isin(self.evidence.stale)
        return rows.kept(required(rows.frame[is_right], "no strategy passed its check"))

    def over(self, problem: str, base: str) -> list[tuple[str, str, Gain]]:
        """(strategy, base, its speed-up over the first strategy of a base), where resolved."""
        bases = self.strategies.get(base, ())[:1]
        pairs = [(name, first) for first in bases for name in self.strategies.get(problem, ())]
        return resolved(self.steps, pairs)

    @property
    def more_bytes(self) -> float:
        """Bytes that a rank sends with a sharded optimizer over those of overlapped gradients."""
        sharded, whole = map(self.sound, ("sharded_optimizer", "overlapped"))
        return sharded.range("sent_bytes").middle / whole.range("sent_bytes").middle

    def moments(self, *problems: str) -> Rows:
        """The memory of a rank of these strategies at each moment, in the cell of `steps`."""
        cell = {name: self.steps.only(name) for name in CELL}
        rows = having(self.evidence.rows(MEMORY), moment=MOMENTS, **cell)
        rows = having(rows, implementation=self._names(*problems))
        return self.rows(MEMORY, rows.assign(gib=rows["total_mib"] / MIB_IN_GIB))

    def moment(self, problem: str, moment: str) -> float:
        """GiB of a rank of the first strategy of a problem at a moment."""
        rows = self.moments(problem)
        return rows.kept(having(rows.frame, moment=moment)).range("gib").low

    @property
    def flops(self) -> float:
        """TFLOP/s of bf16 matmuls back to back."""
        return float(self.evidence.peak("bfloat16", "sustained", sound=True))

    @property
    def link(self) -> float:
        """GB/s that a rank sends in the longest all-reduce."""
        return float(self.of("collectives").longest["bus"])

    @property
    def intensity(self) -> float:
        """FLOPs that a GPU computes while it sends a byte: C / W."""
        return 1e3 * self.flops / self.link

    @property
    def buckets(self) -> dict[str, float]:
        """Of overlapped steps: gradients in bytes, bytes/s of the longest all-reduce, seconds of
        the shortest one, or of its launch if that takes longer, and with these the best number and
        bytes of buckets."""
        parameters = self.sound("bucketed", "overlapped").only("parameters")
        long, short = self.of("collectives").longest, self.of("collectives").shortest
        if not short["message_bytes"] < long["message_bytes"]:
            raise NotMeasured("all-reduces of one length only")
        rate = long["message_bytes"] / long["ms"] * 1e3
        call = float(short[["ms", "host_ms"]].max()) / 1e3
        size = 4 * float(parameters)
        number = max(1.0, math.sqrt(size / (rate * call)))
        return {"bytes": size, "rate": rate, "call": call, "number": number, "each": size / number}


def kind_of(*names: str) -> str:
    """Which strategy the first of some names means that says so; else that of single gradients."""
    for name in names:
        for kind, (_, words) in STRATEGIES.items():
            if words and re.search(words, name.lower()):
                return kind
    return "overlapped"
