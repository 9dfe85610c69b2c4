"""A model run in two ways: an implementation in some numerics beside another in others."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words, implementation_words
from lmperf.reporting.speedup import Speedups, compared, noise_floor, speedup_cells, speedups

STEM = "end_to_end"
CELL = ["size", "context_length", "batch"]
CANDIDATE = "candidate"


@dataclass(frozen=True)
class Variant:
    """An implementation in the numerics of a dtype."""

    implementation: str
    dtype: str

    @property
    def words(self) -> str:
        return f"{implementation_words(self.implementation)}, {dtype_words(self.dtype)}"

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of a frame that are this variant's."""
        own = (frame["implementation"] == self.implementation) & (frame["dtype"] == self.dtype)
        return frame[own]


BASE = Variant("eager", "float32")


def against(evidence: MachineEvidence, variant: Variant, base: Variant = BASE) -> Speedups:
    """Speed-ups of a variant, and perhaps others, over one that was timed in turn with it."""
    if variant.dtype == base.dtype:
        return compared(evidence, STEM, "implementation", base.implementation)
    if variant.implementation == base.implementation:
        return compared(evidence, STEM, "dtype", base.dtype)

    def make() -> Speedups:
        frame = evidence.frame(STEM)
        ours = variant.of(frame).assign(implementation=CANDIDATE, dtype=base.dtype)
        pair = pd.concat([base.of(frame), ours])
        floors = noise_floor(frame)["floor"]
        ratios = speedups(pair, "implementation", base.implementation, floors)
        return Speedups(ratios, speedup_cells(pair, "implementation", base.implementation, ratios))

    return evidence.once(("variants", variant, base), make)


def timed(
    evidence: MachineEvidence, variant: Variant, base: Variant = BASE, phase: str = "train_step"
) -> pd.DataFrame:
    """The rows of a variant that have a speed-up over the base, with ``base_ms`` of the latter."""
    frame = evidence.frame(STEM)
    rows = variant.of(frame).join(against(evidence, variant, base).ratios, how="inner")
    rows = rows[rows["phase"] == phase]
    shown = base.of(frame)[gates.shown(base.of(frame))]
    times = shown[shown["phase"] == phase].drop_duplicates(CELL, keep="last")
    times = times[[*CELL, "median_ms"]].rename(columns={"median_ms": "base_ms"})
    return rows.merge(times, on=CELL, how="left")
