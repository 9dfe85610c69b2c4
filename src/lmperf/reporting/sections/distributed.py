"""Several GPUs: the tables of the template of this name. `several_gpus` has the sentences."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting.evidence import having, some
from lmperf.reporting.results import TIME
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section, predicate, ranks_memory
from lmperf.reporting.sections.ranks_memory import MEMORY, matched
from lmperf.reporting.tables import Quantity, number
from lmperf.reporting.words import sig

STEM, LEDGER = "distributed", "distributed_overlap"
ONE, COMPILED = "one_rank", "_compiled"
HOOKS, DDP, SHARDED, STATE = "overlapped", "ddp", "fully_sharded", "sharded_optimizer"
# The strategies of the first table.
HEAD = (ONE, HOOKS, DDP, SHARDED, "fsdp2")
TIMELINES = ("flat", "overlapped")  # the steps of the figure
MOST_LONGER = 0.2  # what a step hides that is longer under the profiler is that of another step
WIDEST = 0.2  # widest interval of a hidden share that a sentence may name
FROM_LEDGER = ["communication_ms", "hidden_share", "longer", "calls", "sent_bytes"]


def plain(name: str) -> str:
    """The name of a strategy without the suffix of its compiled variant."""
    return name.removesuffix(COMPILED)


def one_rank(name: str) -> str:
    """The step of one rank, compiled if a strategy is."""
    return ONE + COMPILED if name.endswith(COMPILED) else ONE


class Distributed(Section):
    """Steps by strategy. The first table has one cell: see `cell`."""

    lanes = {"computation": "blue", "communication": "orange"}  # colours

    @cached_property
    def steps(self) -> Rows:
        """All steps, with the peak of a rank and what the ledger says of each (D2).

        base: the step of one rank, which others are compared with.
        """
        steps = self.rows(STEM)
        beside = matched(self.ledger.frame, steps.frame)[FROM_LEDGER].astype(float)
        peak = ranks_memory.peaks_gib(self.evidence, steps.frame)
        at = steps.frame["batch"].map("batch {:g}".format)
        base = [
            None if plain(name) == ONE else {"implementation": one_rank(name), "ranks": 1}
            for name in steps.frame["implementation"]
        ]
        return steps.kept(steps.frame.assign(peak=peak, at=at, base=base, **beside))

    @cached_property
    def ledger(self) -> Rows:
        """The overlap ledger (D3), and how far its profiled steps are from the timed ones.

        idle: share of the profiled step in which a rank neither computes nor communicates.
        longer: by which fraction it is longer than the timed step. tells: whether it tells what the
        timed step hides. It does not if that waits for the CPU, if the profiler makes it much
        longer, or if the hidden share varies from step to step.
        """
        rows = self.rows(LEDGER).frame
        rows = rows[rows["table"].isna() | (rows["table"] == "ledger")]
        timed = matched(self.rows(STEM).frame, rows)
        longer = rows["step_ms"] / timed["ms"].astype(float) - 1
        waits = timed["waits"].eq(True)
        width = rows["hidden_share_high"] - rows["hidden_share_low"]
        tells = rows["holds"] & (longer <= MOST_LONGER) & (width <= WIDEST) & ~waits
        idle = 1 - (rows["compute_ms"] + rows["exposed_ms"]) / rows["step_ms"]
        made = {"idle": idle, "longer": longer, "waits": waits, "tells": tells}
        return self.rows(LEDGER, rows.assign(**made))

    @cached_property
    def memory(self) -> Rows:
        return self.rows(MEMORY, ranks_memory.with_predictions(self.evidence))

    def interval(self, name: str, header: str = "") -> Quantity:
        """A time of the ledger with its interval."""
        ends = {end: f"{name}_{end}_ms" for end in ("low", "high")}
        return number(f"{name}_ms", header or name, unit="ms", role=TIME, **ends)

    def component(self, name: str) -> Quantity:
        """A component of a rank's memory: predicted / measured."""
        return number(f"predicted_{name}_mib", name, unit="MiB", second=f"{name}_mib")

    @cached_property
    def _several(self) -> pd.DataFrame:
        """The valid steps on several ranks: compiled ones, if there are any."""
        rows = self.steps.valid.frame
        rows = some(rows[rows["ranks"] > 1], "no step on several ranks")
        compiled = rows["implementation"].str.endswith(COMPILED)
        return rows[compiled] if compiled.any() else rows

    @property
    def suffix(self) -> str:
        """Of the names of the strategies in the first table."""
        return COMPILED if self._several["implementation"].str.endswith(COMPILED).any() else ""

    @cached_property
    def cell(self) -> dict:
        """The cell of the first table: the largest size, on most ranks."""
        rows, found = self._several, {}
        for axis in ("size", "context_length", "dtype", "ranks"):
            found[axis] = in_order(axis, rows[axis])[-1]
            rows = having(rows, **{axis: found[axis]})
        return found

    @property
    def ranks(self) -> int:
        return int(self.cell["ranks"])

    @predicate
    def has_head(self) -> bool:
        """Whether the first table has steps on several ranks."""
        return self._batches

    @cached_property
    def _batches(self) -> list[int]:
        names = [family + self.suffix for family in HEAD]
        rows = having(self._several, implementation=names, **self.cell)
        rows = some(rows, "no strategy of the first table ran")
        return sorted(int(batch) for batch in rows["batch"].unique())

    @property
    def few(self) -> int:
        """The smallest batch of the first table."""
        return self._batches[0]

    @property
    def many(self) -> int:
        """The largest batch of the first table."""
        return self._batches[-1]

    @property
    def batches(self) -> list[str]:
        return [f"batch {batch}" for batch in dict.fromkeys((self.few, self.many))]

    def within(self, rows: Rows, **where) -> Rows:
        """The rows in the cell of the first table, with these further values."""
        return rows.kept(having(rows.frame, **{**self.cell, **where}))

    def strategies(self, *names: str) -> Rows:
        """The steps of implementations in the cell of the first table, also those of one rank."""
        where = {"ranks": [1, self.ranks], "batch": [self.few, self.many]}
        return self.within(self.steps, implementation=names, **where)

    @cached_property
    def head(self) -> Rows:
        """The rows of the first table, at its smallest and its largest batch."""
        return self.strategies(*(family + self.suffix for family in HEAD))

    @property
    def spans(self) -> list[dict]:
        """The bars of the figure of two steps: an interval each, in ms from the beginning."""
        rows = having(self.rows(LEDGER).frame, table="timeline", batch=self.few, **self.cell)
        rows = some(having(rows, implementation=TIMELINES), "no timeline of a step")
        return [
            {
                "panel": implementation_words(row["implementation"]),
                "name": row["lane"],
                "starts": row["starts_ms"],
                "ends": row["ends_ms"],
                "value": f"{sig(row['ends_ms'] - row['starts_ms'])} ms",
            }
            for row in rows.to_dict("records")
        ]

    @property
    def drawn(self) -> pd.Series:
        """The row of the ledger of the step with hooks in that figure."""
        return self.within(self.ledger, batch=self.few, implementation=HOOKS).one
