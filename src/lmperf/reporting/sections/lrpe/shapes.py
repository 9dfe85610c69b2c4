"""Shapes such as 128x128: their axes and positions, and the order in which they are read."""

from __future__ import annotations

import math

import pandas as pd

STEM = "lrpe"
KERNELS = ("triton", "triton_cached")
COPY = "copy"


def by_shape(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with columns ``axes`` and ``positions``, in the order of these two."""
    lengths = [[int(length) for length in shape.split("x")] for shape in frame["shape"]]
    frame = frame.assign(
        axes=[len(each) for each in lengths], positions=[math.prod(each) for each in lengths]
    )
    return frame.sort_values(["axes", "positions"], kind="stable")
