"""Steps that wait for the CPU, and what a CUDA graph gains there."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.evidence import having, some, sorted_for_reading
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.steps import (
    FUSED_NARROW,
    GRAPH_NARROW,
    SDPA,
    SDPA_GRAPH,
    beside,
)
from lmperf.reporting.sections.what_to_run import WhatToRun
from lmperf.reporting.words import NotMeasured

GAINS = 1.1  # a graph gains something where a step without it takes so many times as long
SHOWN = 2  # sizes in a sentence


class Host(Section):
    """The steps at the usual cell of each size."""

    @cached_property
    def run(self) -> WhatToRun:
        return self.of("what_to_run")

    @cached_property
    def busy(self) -> pd.DataFrame:
        """The compiled steps that wait."""
        rows = having(self.run.valid, way=[SDPA], waits=True, holds=True)
        return sorted_for_reading(some(rows, "no compiled step waits"), ["size"])

    @property
    def again(self) -> pd.DataFrame:
        """Those that were measured again by another process, which took `ms_again`."""
        why = "no compiled step was measured again"
        found = having(some(self.evidence.twice, why), key=[*self.busy["key"]])
        return sorted_for_reading(some(found, why), ["size"])

    @property
    def launching(self) -> pd.DataFrame:
        """The steps of the first size of `busy` that wait, by `us`: microseconds for a kernel."""
        rows = having(self.run.valid, size=self.busy["size"].iloc[0], waits=True, holds=True)
        rows = some(rows.dropna(subset=["launches"]), "no number of kernels")
        return rows.assign(us=1000 * rows["ms"] / rows["launches"]).sort_values("us")

    # A graph beside the same kernels without it, with bf16 weights.

    @property
    def gains(self) -> pd.DataFrame:
        """The smallest sizes at which the step without a graph waits, and takes longer."""
        graphs = beside(self.evidence, GRAPH_NARROW, FUSED_NARROW)
        return graphs[graphs["waits"] & (graphs["ratio"] > GAINS)].head(SHOWN)

    @property
    def largest(self) -> pd.Series:
        """The largest size in a graph, beside SDPA, else bf16 weights, without one; `words`."""
        both = {"SDPA, compiled": (SDPA_GRAPH, SDPA), "bf16 weights": (GRAPH_NARROW, FUSED_NARROW)}
        for words, ways in both.items():
            found = having(beside(self.evidence, *ways), size=self.run.sizes[-1])
            if len(found) and not found["waits"].iloc[0]:
                return found.assign(words=words).iloc[0]
        raise NotMeasured("the largest size waits for the CPU, or was not measured")
