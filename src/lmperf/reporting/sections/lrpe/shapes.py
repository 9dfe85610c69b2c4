"""Shapes such as 128x128: their axes and positions, and the order in which they are read."""

from __future__ import annotations

import math

import pandas as pd

STEM = "lrpe"
KERNELS = ("triton", "triton_cached")
COPY = "copy"


def shaped(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with columns ``axes``, how many, and ``positions``, without the extra tokens."""
    lengths = {shape: [int(n) for n in shape.split("x")] for shape in frame["shape"].unique()}
    return frame.assign(
        axes=frame["shape"].map({shape: len(each) for shape, each in lengths.items()}),
        positions=frame["shape"].map({shape: math.prod(each) for shape, each in lengths.items()}),
    )


def by_shape(frame: pd.DataFrame) -> pd.DataFrame:
    """``shaped`` rows in the order of axes and positions."""
    return shaped(frame).sort_values(["axes", "positions"], kind="stable")
