"""How the step that the report recommends scales: on one GPU and on several, beside its peers."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.names import in_order, size_in_full
from lmperf.reporting.columns import Quantity, across, memory, number
from lmperf.reporting.frames import having, matching, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured
from lmperf.transformer.sizes import VOCAB_SIZE

ONE, WHOLE, SHARDED = "one_rank_graph", "overlapped_graph", "sharded_optimizer_graph"
OURS = (ONE, WHOLE, SHARDED)
PEER_ALONE = "one_rank_compiled"  # the step of peers on one rank
PEERS = ("ddp", "fsdp2")  # how their names begin
CELL = ["size", "context_length"]
OWN = ("tokens_s", "ms", "clock_mhz")


class Scaling(Section):
    """Steps on several ranks beside the recommended step of one.

    Weak scaling: each rank has as many sequences as the one rank. Strong: all together have.
    """

    whole, sharded, vocabulary = WHOLE, SHARDED, VOCAB_SIZE

    @cached_property
    def steps(self) -> Rows:
        """The steps of the cells in which one rank made the recommended step.

        a_rank: sequences of a rank. scaling: `weak` or `strong`, None for one rank. times: tokens
        a second over those of the recommended step on one rank. of_linear: tokens a second of a
        rank over those of the own step on one rank: of the recommended one, or of the peers'.
        own_ms, own_clock_mhz: the time and the clock of that one.
        """
        steps = self.of("distributed").steps
        frame = steps.frame
        base, of_peers = (
            matching(frame, having(frame, implementation=name, ranks=1), CELL)
            for name in (ONE, PEER_ALONE)
        )
        a_rank = frame["batch"] / frame["ranks"]
        scaling = pd.Series(None, frame.index, object)
        scaling[frame["batch"] == base["batch"]] = "strong"
        scaling[a_rank == base["batch"]] = "weak"
        scaling[frame["ranks"] == 1] = None
        is_ours = frame["implementation"].isin(OURS)
        own = {name: base[name].where(is_ours, of_peers[name]) for name in OWN}
        frame = frame.assign(
            a_rank=a_rank,
            scaling=scaling,
            times=frame["tokens_s"] / base["tokens_s"],
            of_linear=frame["tokens_s"] / own["tokens_s"] / frame["ranks"],
            own_ms=own["ms"],
            own_clock_mhz=own["clock_mhz"],
            holds=frame["holds"] & base["holds"].eq(True),
        )
        return steps.kept(frame[base["batch"].notna()])

    def head(self, gpu: str) -> tuple[Rows, list[Quantity]]:
        """The steps of the first table, and what it shows of weak scaling alone.

        at: `weak` or `strong`; one rank is the beginning of both, and stands under `weak`. alone:
        sequences of the one rank. gpu: the noun of a rank.
        """
        frame = self.steps.frame
        weak = frame["scaling"].eq("weak") | (frame["ranks"] == 1)
        alone = frame["a_rank"].where(weak, frame["batch"]).astype(int)
        shown = self.steps.kept(frame.assign(at=frame["scaling"].where(~weak, "weak"), alone=alone))
        of_weak = (
            number("tokens_s", "tokens/s", "rounded"),
            self.of("distributed").hidden("whole", interval=False),
            memory("peak", f"peak of a {gpu}", "GiB"),
        )
        return shown.query("at.notna()"), across("at", ["weak"], *of_weak)

    @property
    def is_measured(self) -> bool:
        """Whether there are steps on several ranks beside that of one."""
        return bool(self.steps.query("ranks > 1"))

    @property
    def ranks(self) -> int:
        """The largest number of ranks."""
        return int(required(self.steps.frame["ranks"], "no step scales").max())

    @property
    def size(self) -> str:
        """The largest size that scales."""
        rows = having(self.steps.valid.frame, ranks=self.ranks)
        return in_order("size", required(rows["size"], "no step scales"))[-1]

    def at(self, scaling: str, *names: str) -> Rows:
        """The steps at the largest size, on the largest number of ranks.

        names: of implementations; by default all.
        """
        where = {"implementation": names} if names else {}
        return self.steps.where(size=self.size, ranks=self.ranks, scaling=scaling, **where)

    @property
    def has_one_count(self) -> bool:
        """Whether all steps on several ranks have the same number of them."""
        return self.steps.query("ranks > 1").frame["ranks"].nunique() == 1

    def throttled(self, name: str) -> pd.Series:
        """The weak step of an implementation.

        NotMeasured unless it draws the power limit, at a lower clock than the step of one rank.
        """
        rows = self.at("weak", name).sound
        rows = rows[self.evidence.at_limit(rows) & (rows["clock_mhz"] < rows["own_clock_mhz"])]
        return required(rows, "it draws less").iloc[0]

    @property
    def is_repeated(self) -> bool:
        """Whether any of these steps was measured a second time (R1)."""
        again = {row["key"] for row in self.evidence.again.get("distributed", ())}
        return bool(again & {*self.steps.frame["key"]})

    @property
    def sizes(self) -> list[str]:
        """The sizes with their numbers of parameters."""
        return [*map(size_in_full, in_order("size", self.steps.frame["size"]))]

    @cached_property
    def best(self) -> str:
        """The strategy of ours to use: ZeRO-1 unless it is slower, or was not measured."""
        try:
            return WHOLE if self.at("weak", SHARDED).over(WHOLE).is_slower else SHARDED
        except NotMeasured:
            return WHOLE

    @property
    def saved(self) -> list[tuple[float, float, str]]:
        """(peak of a rank with the whole state, with a part of it, size) by size, GiB."""
        peaks = {}
        for name in (WHOLE, SHARDED):
            steps = self.steps.where(ranks=self.ranks, scaling="weak", implementation=name)
            peaks[name] = steps.valid.frame.set_index("size")["peak"]
        both = pd.DataFrame(peaks).dropna()
        return [(*both.loc[size, [WHOLE, SHARDED]], size) for size in in_order("size", both.index)]

    @property
    def over_peers(self) -> list[tuple[Gain, str]]:
        """(gain of `best` over it, its name) of the fastest peer of each kind."""
        names = self.at("weak").valid.frame.sort_values("ms")["implementation"]
        peers = [name for kind in PEERS for name in names[names.str.startswith(kind)][:1]]
        ours = self.at("weak", self.best)
        return [(ours.over(peer), peer) for peer in peers]

    @property
    def over_peer_alone(self) -> Gain:
        """The speed-up of the recommended step over that of the peers on one rank."""
        return self.steps.where(size=self.size, ranks=1, implementation=ONE).over(PEER_ALONE)
