"""Activation checkpointing (Y6): calculations of the template of memory.

The predicted peaks are computed from the cells, so that a step that runs out of memory has one.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting.calculations.steps import STEP
from lmperf.reporting.frames import LAST, at, having, required
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import MIB, MIB_IN_GIB, NotMeasured
from lmperf.transformer.footprint import predicted_memory
from lmperf.transformer.sizes import SHORT

STEM, NONE = "checkpointing", "eager"


class Cost(NamedTuple):
    """By which fraction checkpoints make a step of a size longer."""

    size: str
    longer: float


class Checkpointing(Section):
    """Train steps by the size of the checkpoints, with their predicted peaks."""

    @cached_property
    def every(self) -> Rows:
        """The rows with `predicted_mib` and `difference`."""
        rows = self.evidence.rows(STEM)
        declared = {implementation.name for implementation in load(STEM).implementations}
        rows = rows[rows["implementation"].isin(declared)]
        predicted = [self._predicted(row) / MIB for _, row in rows.iterrows()]
        rows = rows.assign(predicted_mib=pd.Series(predicted, rows.index, dtype=float))
        return self.rows(STEM, rows.assign(difference=rows["peak_mib"] / rows["predicted_mib"] - 1))

    def _predicted(self, row: pd.Series) -> int:
        options = load(STEM).implementation(row["implementation"]).options
        return predicted_memory(
            SHORT[row["size"]],
            int(row["context_length"]),
            int(row["batch"]),
            row["dtype"],
            STEP,
            self.evidence.environment.get("kind") or "cpu",
            segment=options["layers"],
            nested=options.get("nested", False),
        )["peak"]

    def saved(self, implementation: str = "") -> pd.Series:
        """The checkpoints at the largest size; by default those with the least peak.

        Its row, with compared (how many sizes of checkpoints), fits (whether the step without
        checkpoints does); GiB: none (the peak without checkpoints, predicted unless it fits),
        nested (NaN if not measured). nested_time: how many times as long the nested step takes.
        """
        steps = self.every.valid.frame.dropna(subset=["peak_mib"])
        nested = steps["implementation"].map(lambda name: name.startswith("nested")).astype(bool)
        plain = steps[~nested & (steps["implementation"] != NONE)]
        if implementation:
            plain = having(plain, implementation=implementation)
        plain = required(plain, "no checkpoints were measured")
        plain = at(plain, size=LAST)
        best = plain.loc[plain["peak_mib"].idxmin()]
        cell = best[["size", "context_length", "batch", "dtype"]]
        nested = having(steps[nested & steps["holds"] & best["holds"]], **cell)
        none = having(self.every.frame, implementation=NONE, **cell)
        none = required(none, "the step without checkpoints has no row").iloc[0]
        fits = none["state"] is None and none["peak_mib"] == none["peak_mib"]
        about = {
            "compared": len(plain),
            "fits": fits,
            "none": none["peak_mib" if fits else "predicted_mib"] / MIB_IN_GIB,
            "nested": nested["peak_mib"].min() / MIB_IN_GIB,
            "nested_time": nested["ms"].min() / best["ms"],
        }
        return pd.concat([best, pd.Series(about, dtype=object)])

    def cost(self, implementation: str) -> Cost:
        """The largest size at which both fit, and by how much these make its step longer."""
        sizes = self.every.where(implementation=implementation).over(NONE).by("size")
        if not sizes or not sizes[-1][1].is_slower:
            raise NotMeasured("checkpoints do not make the step longer")
        size, gain = sizes[-1]
        return Cost(size, 1 / gain.mean - 1)
