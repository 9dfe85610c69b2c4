"""Rows of md_lrpe_cosine with their number of positions, and the lead implementation.

The lead is the implementation that the section shows first and compares with the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import counted
from lmperf.reporting.speedup import COLUMNS, Series, compared

STEM = "lrpe"
# The lead is the first of these that was measured.
LEADS = ("triton", "compiled", "eager")
CELL = ["positions", "shape", "extra_tokens", "batch", "heads", "d_head"]
# Shapes with at least this fraction of the most positions: memory-bound, not launch-bound.
LARGE = 0.25
# A share of copy speed this near to 1 counts as 1: the copies of two runs differ by as much.
NEAR_COPY = 0.02


def rows_of(evidence: MachineEvidence) -> pd.DataFrame | None:
    """All rows with four more columns; None without evidence.

    ``axes``: number of axes of the shape. ``positions``: its number of positions, without extra
    tokens. ``large``: whether it has at least ``LARGE`` of the most positions. ``gbps``: GB/s.
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
    """The implementations of ``LEADS`` that have a row that may be shown."""
    present = set(frame.loc[gates.shown(frame), "implementation"])
    return [name for name in LEADS if name in present]


def numerics(frame: pd.DataFrame) -> str:
    """The dtype of the findings, head table and figure: the last one in reading order."""
    return in_order("dtype", frame["dtype"])[-1]


def over(
    evidence: MachineEvidence, name: str, base: str, which: Callable = compared
) -> pd.DataFrame:
    """Speed-ups of ``name`` over ``base``; over ``copy``, its speed relative to a copy.

    which: ``speedup.compared``, or ``every`` for a table.
    """
    found = which(evidence, STEM, *(Series.of(implementation=n) for n in (name, base)))
    return found[COLUMNS]


def large_words(rows: pd.DataFrame) -> str:
    """The fewest positions of a large shape: ``from 8,192 positions``, or ``8,192 positions``.

    The word ``from`` is left out if all rows have the same number of positions.
    """
    fewest = counted(rows.loc[rows["large"], "positions"].min(), "position")
    return fewest if rows["positions"].nunique() == 1 else f"from {fewest}"
