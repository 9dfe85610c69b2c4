"""Train steps with bf16 weights: what they gain over float32 weights."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.reporting.calculations.steps import (
    FUSED_NARROW,
    GRAPH,
    GRAPH_NARROW,
    SDPA,
    SDPA_COPIES,
    SDPA_GRAPH,
    SDPA_NARROW,
    Way,
    beside,
    fastest_steps,
)
from lmperf.reporting.frames import having, matching, required
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.what_to_run import WhatToRun, in_reading_order
from lmperf.reporting.words import NotMeasured
from lmperf.statistics import FASTER

# The steps with SDPA that bf16 weights are compared with, the best one first.
PEERS = {
    SDPA_NARROW: "SDPA, compiled, in a graph with bf16 weights and lmperf's AdamW",
    SDPA_COPIES: "SDPA, compiled, in a graph with bf16 copies",
    SDPA_GRAPH: "SDPA, compiled, in a graph with float32 weights",
    SDPA: "SDPA, compiled, with float32 weights",
}
GROWS = 1.03  # a larger batch gains nothing unless it makes so many times as many tokens a second


class Bf16Weights(Section):
    """Steps with bf16 weights in the cells of `what_to_run`."""

    @cached_property
    def run(self) -> WhatToRun:
        return self.of("what_to_run")

    @cached_property
    def way(self) -> Way:
        """How steps with bf16 weights run: as a graph, if that was measured."""
        return self._first((GRAPH_NARROW, FUSED_NARROW), "no step was measured with bf16 weights")

    def _first(self, ways: Iterable[Way], why: str) -> Way:
        """The first of some ways that was measured; `why`: what is said if none was."""
        measured = {*self.run.valid["way"]}
        return required([way for way in ways if way in measured], why)[0]

    @cached_property
    def steps(self) -> Rows:
        """The steps with bf16 weights."""
        return self.rows("", self.run.valid[self.run.valid["way"] == self.way])

    @cached_property
    def losses(self) -> pd.DataFrame:
        """The losses of these sizes: with bf16 weights, of the graph above, and in float32.

        implementation: `loss`, `loss_graph` or `loss_float32`. loss_low, loss_high: the range with
        float32 weights and gradients.
        """
        rows, steps = self.of("losses").every.frame, self.steps.frame
        rows = having(rows, size=[*steps["size"]])
        ours = steps["rung"].iloc[0]
        names = {ours: "loss", "graph": "loss_graph", "float32": "loss_float32"}
        rows = rows.assign(implementation=rows["implementation"].map(names))
        rows = rows.rename(columns={"low": "loss_low", "high": "loss_high"})
        return rows[rows["implementation"].notna()]

    @property
    def lines(self) -> Rows:
        """`steps`, under `step` as `implementation`, those of SDPA under `sdpa`, and `losses`."""
        rows = self.run.valid
        peers = rows[(rows["way"] == SDPA_NARROW) & rows["size"].isin(self.steps.frame["size"])]
        without = dict.fromkeys(("loss", "loss_low", "loss_high"), np.nan)
        parts = {"sdpa": peers, "step": self.steps.frame}
        steps = [part.assign(implementation=name, **without) for name, part in parts.items()]
        return self.rows("", in_reading_order([*steps, self.losses]))

    @property
    def is_graph(self) -> bool:
        return self.way == GRAPH_NARROW

    @property
    def has_losses(self) -> bool:
        """Whether a loss of bf16 weights was measured at some size that has a step."""
        return "loss" in {*self.losses["implementation"]}

    @property
    def gains(self) -> bool:
        """Whether bf16 weights are faster than the best step with float32 weights at some size."""
        parts = [
            having(beside(self.evidence, self.way, best["way"]), size=best["size"])
            for _, best in fastest_steps(self.run.wide).iterrows()
        ]
        if not any(map(len, parts)):
            raise NotMeasured("bf16 weights are not compared with float32 weights")
        return any((part["verdict"] == FASTER).any() for part in parts)

    @cached_property
    def peer(self) -> Way:
        """The best step with SDPA that was measured in the cells of `steps`."""
        return self._first(PEERS, "no SDPA was measured")

    @property
    def peer_words(self) -> str:
        return PEERS[self.peer]

    @cached_property
    def over_peer(self) -> pd.DataFrame:
        """bf16 weights beside `peer`, at the sizes at which neither step waits."""
        return self.run.pairs(self.way, self.peer)

    @property
    def over_larger(self) -> pd.DataFrame:
        """bf16 weights beside the graph with float32 weights, of larger batches."""
        return self.run.pairs(self.way, GRAPH, larger=True)

    @property
    def growing(self) -> pd.DataFrame:
        """The steps with bf16 weights whose larger batch makes more tokens a second.

        Of those that hold and ran on the GPU of the table's step.
        """
        rows = self.run.larger[(self.run.larger["way"] == self.way) & self.run.larger["holds"]]
        rows = required(rows, "no larger batch was measured with bf16 weights")
        before = matching(rows, self.steps.frame, ["size"])
        is_comparable = rows["gpus"].fillna("") == before["gpus"].fillna("")
        rows = required(rows[is_comparable], "larger batches ran on other GPUs")
        return rows[rows["tokens_s"] > GROWS * before["tokens_s"][rows.index]]
