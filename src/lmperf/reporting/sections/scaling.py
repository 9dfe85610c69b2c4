"""How the step that the report recommends scales: on one GPU and on several, beside its peers."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting.frames import having, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section, predicate

ONE, WHOLE, SHARDED = "one_rank_graph", "overlapped_graph", "sharded_optimizer_graph"
# How the names of peers begin, by the strategy of ours that they are nearest to.
PEERS = {WHOLE: "ddp", SHARDED: "fsdp2"}
CELL = ["size", "context_length"]


class Scaling(Section):
    """Steps on several ranks beside the recommended step of one.

    Weak scaling: each rank has as many sequences as the one rank. Strong: all together have.
    """

    one, whole, sharded = ONE, WHOLE, SHARDED

    @cached_property
    def steps(self) -> Rows:
        """The steps of the cells in which one rank made the recommended step.

        a_rank: sequences of a rank. scaling: `weak` or `strong`, None for one rank. times: tokens
        a second over those of the recommended step on one rank. of_linear: `times` over `ranks`.
        """
        steps = self.of("distributed").steps
        frame = steps.frame
        base = having(frame, implementation=ONE, ranks=1).drop_duplicates(CELL)
        beside = frame[CELL].merge(base[[*CELL, "batch", "tokens_s", "holds"]], "left", CELL)
        beside.index = frame.index
        a_rank = frame["batch"] / frame["ranks"]
        scaling = pd.Series(None, frame.index, object)
        scaling[frame["batch"] == beside["batch"]] = "strong"
        scaling[a_rank == beside["batch"]] = "weak"
        scaling[frame["ranks"] == 1] = None
        times = frame["tokens_s"] / beside["tokens_s"]
        frame = frame.assign(
            a_rank=a_rank,
            scaling=scaling,
            times=times,
            of_linear=times / frame["ranks"],
            holds=frame["holds"] & beside["holds"].eq(True),
        )
        return steps.kept(frame[beside["batch"].notna()])

    @predicate
    def is_measured(self) -> bool:
        """Whether there are steps on several ranks beside that of one."""
        return self.steps.query("ranks > 1")

    @predicate
    def lacks_peak(self) -> bool:
        """Whether steps of FSDP2 have a time and no peak."""
        return self.steps.query(
            "implementation.str.startswith('fsdp2') and peak.isna() and state.isna()"
        )

    def has(self, peer: str) -> bool:
        """Whether a step of a peer, by how its names begin, is among the steps."""
        return self.steps.frame["implementation"].str.startswith(peer).any()

    @property
    def ranks(self) -> int:
        """The largest number of ranks."""
        return int(required(self.steps.frame["ranks"], "no step scales").max())

    @property
    def size(self) -> str:
        """The largest size that scales."""
        rows = having(self.steps.valid.frame, ranks=self.ranks)
        return in_order("size", required(rows["size"], "no step scales"))[-1]

    def step(self, name: str, scaling: str) -> pd.Series:
        """The step of an implementation at the largest size, on the largest number of ranks."""
        return self._at(name, scaling).one

    def peer(self, name: str, scaling: str) -> str:
        """The fastest peer of a strategy of ours, at the cell of `step`."""
        begins = f"implementation.str.startswith('{PEERS[name]}')"
        rows = self._at(None, scaling).query(begins).valid.frame
        return required(rows, "no peer has a time").sort_values("ms")["implementation"].iloc[0]

    def over(self, name: str, base: str, scaling: str) -> Gain:
        """The speed-up of the step of `step` over that of another implementation."""
        return self._at(name, scaling).over(base)

    def _at(self, name: str | None, scaling: str) -> Rows:
        where = {"scaling": scaling} | ({"implementation": name} if name else {})
        rows = having(self.steps.frame, size=self.size, ranks=self.ranks, **where)
        return self.steps.kept(rows)
