"""Rows of md_lrpe_cosine by shape, and which of its implementations a section is about."""

from __future__ import annotations

import math

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting import gates

STEM, COPY, TRITON, CACHED = "lrpe", "copy", "triton", "triton_cached"
# The first that was measured leads: it is what a copy and the others behind it are beside.
LEADS = (TRITON, "compiled", "eager")
CELL = ["positions", "shape", "extra_tokens", "batch", "heads", "d_head"]
# A cell is large from this share of the most bytes that any cell moves.
LARGE = 0.2


def shaped(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with columns ``axes``, how many, and ``positions``, without the extra tokens."""
    lengths = {shape: [int(n) for n in shape.split("x")] for shape in frame["shape"].unique()}
    return frame.assign(
        axes=frame["shape"].map({shape: len(each) for shape, each in lengths.items()}),
        positions=frame["shape"].map({shape: math.prod(each) for shape, each in lengths.items()}),
    )


def measured_leads(frame: pd.DataFrame) -> list[str]:
    """Those of ``LEADS`` that have a time to show."""
    present = set(frame.loc[gates.shown(frame), "implementation"])
    return [name for name in LEADS if name in present]


def main_dtype(frame: pd.DataFrame) -> str:
    """The numerics that findings, head and figure are about: the last in reading order."""
    return in_order("dtype", frame["dtype"])[-1]


def large(rows: pd.DataFrame, most: float) -> pd.DataFrame:
    """The rows whose cells move at least LARGE of ``most`` bytes."""
    return rows[rows["bytes"] >= LARGE * most]
