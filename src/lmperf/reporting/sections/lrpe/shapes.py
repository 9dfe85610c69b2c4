"""Rows of md_lrpe_cosine by shape, and the implementation that the section is about."""

from __future__ import annotations

import math

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import counted
from lmperf.reporting.speedup import Series, speedups

STEM = "lrpe"
# The first of these that was measured is shown first; the copy and the others are compared with it.
LEADS = ("triton", "compiled", "eager")
CELL = ["positions", "shape", "extra_tokens", "batch", "heads", "d_head"]
# From this fraction of the largest number of positions on: memory-bound rather than launch-bound.
LARGE = 0.25


def rows_of(evidence: MachineEvidence) -> pd.DataFrame | None:
    """All rows with ``axes`` (their number), ``positions``, ``large`` and ``gbps``.

    ``positions`` excludes extra tokens. None without evidence.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    lengths = frame["shape"].str.split("x")
    positions = lengths.map(lambda each: math.prod(map(int, each)))
    return frame.assign(
        axes=lengths.map(len),
        positions=positions,
        large=positions >= LARGE * positions.max(),
        gbps=frame["bytes"] / frame["median_ms"] / 1e6,
    )


def leads(frame: pd.DataFrame) -> list[str]:
    """Those of ``LEADS`` that have a time to show."""
    present = set(frame.loc[gates.shown(frame), "implementation"])
    return [name for name in LEADS if name in present]


def numerics(frame: pd.DataFrame) -> str:
    """The dtype of findings, head and figure: the last in reading order."""
    return in_order("dtype", frame["dtype"])[-1]


def over(evidence: MachineEvidence, name: str, base: str) -> pd.DataFrame:
    """``speedups`` of an implementation over another; over the copy, its share of a copy."""
    return speedups(evidence, STEM, *(Series.of(implementation=n) for n in (name, base)))


def large_words(rows: pd.DataFrame) -> str:
    """``from 8,192 positions``: the fewest large ones; no ``from`` if all have as many."""
    fewest = counted(rows.loc[rows["large"], "positions"].min(), "position")
    return fewest if rows["positions"].nunique() == 1 else f"from {fewest}"
