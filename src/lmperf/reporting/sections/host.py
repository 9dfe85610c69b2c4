"""Steps that wait for the CPU, and what a CUDA graph gains there."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.evidence import Evidence, having, sorted_for_reading
from lmperf.reporting.sections import Section, section
from lmperf.reporting.sections.steps import (
    BUSY,
    FUSED,
    FUSED_NARROW,
    GRAPH,
    GRAPH_NARROW,
    SDPA,
    compared,
    usual,
)
from lmperf.reporting.sections.ways import Way
from lmperf.reporting.sections.what_to_run import WhatToRun
from lmperf.reporting.words import NotMeasured

GAINS = 1.1  # a graph gains something where a step without it takes so many times as long
SAME = 1.03
IDLE = 0.75  # a GPU that draws less of its power limit is often idle
SHOWN = 2  # sizes in a sentence
STEADY, DISTURBED = 1.1, 1.5


class Host(Section):
    """The steps at the usual cell of each size."""

    @cached_property
    def run(self) -> WhatToRun:
        return section("what_to_run", self.evidence)

    @property
    def any_waits(self) -> bool:
        return self.evidence.is_cuda and self.run.waits

    @cached_property
    def smallest(self) -> pd.Series:
        """The compiled step of the smallest size.

        Raises:
            NotMeasured: it was not measured, or does not wait for the CPU.
        """
        rows = having(self.run.valid, way=[SDPA], size=self.run.sizes[0])
        if rows.empty or not rows["waits"].iloc[0]:
            raise NotMeasured("the compiled step of the smallest size does not wait")
        return rows.iloc[0]

    @property
    def launching_ms(self) -> float:
        """The time in which the CPU launches the kernels of a single call of that step."""
        return min(self.smallest["host_ms"], self.smallest["median_ms"])

    @property
    def limit_w(self) -> float:
        return self.evidence.environment.get("power_limit_w") or float("nan")

    @property
    def is_idle(self) -> bool:
        """Whether the GPU draws much less than its power limit; False if that is not known."""
        return bool(self.smallest["sustained_w"] < IDLE * self.limit_w)

    # A graph beside the same kernels without it, with bf16 weights.

    @cached_property
    def graphs(self) -> pd.DataFrame:
        found = self._beside(self.evidence, GRAPH_NARROW, FUSED_NARROW)
        if found.empty:
            raise NotMeasured("no CUDA graph with bf16 weights was measured")
        return found

    @staticmethod
    def _beside(evidence: Evidence, ours: Way, base: Way) -> pd.DataFrame:
        found = compared(evidence, ours, base)
        found = found[found.index.isin(usual(evidence).index)]
        return sorted_for_reading(found.assign(way=[ours] * len(found)), ["size"])

    @property
    def gains(self) -> list[pd.Series]:
        """The smallest sizes at which the step without a graph waits, and takes longer."""
        found = self.graphs[self.graphs["waits"] & (self.graphs["ratio"] > GAINS)]
        return [row for _, row in found.head(SHOWN).iterrows()]

    def without(self, row: pd.Series) -> pd.Series:
        """The step without a graph that stands beside a step with one."""
        steps = usual(self._source if row["way"] == GRAPH else self.evidence)
        way = FUSED if row["way"] == GRAPH else FUSED_NARROW
        return having(steps, way=[way], size=row["size"]).iloc[0]

    @property
    def largest(self) -> pd.Series:
        """The largest size, with and without a graph.

        Raises:
            NotMeasured: it waits for the CPU, or was not measured.
        """
        row = self.graphs.iloc[-1]
        if row["size"] != self.run.sizes[-1] or row["waits"]:
            raise NotMeasured("the largest size waits for the CPU, or was not measured")
        return row

    @property
    def changes_nothing(self) -> bool:
        return 1 / SAME <= self.largest["ratio"] <= SAME

    @property
    def still_gains(self) -> bool:
        return self.largest["ratio"] > SAME

    # A graph with float32 weights: here, or on another machine.

    @cached_property
    def _source(self) -> Evidence:
        """The first machine with a graph with float32 weights whose GPU time is known."""
        for one in (self.evidence, *self.evidence.others):
            if one.is_cuda and len(self._profiled(one)):
                return one
        raise NotMeasured("no CUDA graph with float32 weights was measured")

    def _profiled(self, evidence: Evidence) -> pd.DataFrame:
        found = self._beside(evidence, GRAPH, FUSED)
        names = ["device_ms", "launches", "way"]
        found = found.drop(columns=names, errors="ignore").join(usual(evidence)[names])
        return found[found["device_ms"].notna()]

    @property
    def profiled(self) -> list[pd.Series]:
        """The smallest sizes with such a graph, beside the step without it."""
        return [row for _, row in self._profiled(self._source).head(SHOWN).iterrows()]

    @property
    def is_owed(self) -> bool:
        """Whether such a graph is to be measured here."""
        return self._profiled(self.evidence).empty

    @property
    def others_know(self) -> bool:
        """Whether another machine has such a graph."""
        return any(one.is_cuda and len(self._profiled(one)) for one in self.evidence.others)

    @property
    def is_elsewhere(self) -> bool:
        return self._source is not self.evidence

    @property
    def device(self) -> str:
        return self._source.environment["device"]

    @property
    def here(self) -> str:
        """This machine's device without its maker."""
        return self.evidence.environment["device"].removeprefix("NVIDIA ")

    @cached_property
    def _disturbed(self) -> pd.DataFrame:
        """The steps beside busy processes, with `ratio` to the same step without them."""
        busy, quiet = usual(self._source, BUSY), usual(self._source)
        both = busy[busy["state"].isna()].merge(
            quiet[quiet["state"].isna()], on=["size", "way"], suffixes=("", "_quiet")
        )
        if both.empty:
            raise NotMeasured("no step was timed beside busy processes")
        return sorted_for_reading(both.assign(ratio=both["ms"] / both["ms_quiet"]), ["size"])

    @property
    def graphs_disturbed(self) -> pd.DataFrame:
        found = having(self._disturbed, way=[GRAPH])
        if found.empty:
            raise NotMeasured("no CUDA graph was timed beside busy processes")
        return found

    @property
    def disturbed_ms(self) -> list[float]:
        return [*self.graphs_disturbed["ms"]]

    @property
    def graph_disturbed(self) -> float:
        """How many times as long the graph takes beside busy processes; the median."""
        return float(self.graphs_disturbed["ratio"].median())

    @property
    def others_disturbed(self) -> float:
        """How many times as long other steps take beside busy processes; the median."""
        rows = self._disturbed[self._disturbed["implementation"] != "graph"]
        if rows.empty:
            raise NotMeasured("only graphs were timed beside busy processes")
        return float(rows["ratio"].median())

    @property
    def graph_is_steady(self) -> bool:
        """Whether busy processes slow other steps, but not the graph."""
        steady = (self.graphs_disturbed["ratio"] < STEADY).all()
        return bool(steady and self.others_disturbed > DISTURBED)
