"""Kinds of cells (one head, replayed as a CUDA graph, a grid that fills), and their numerics."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.numbers import dtype_words

TRITON = "triton"


def numerics_words(dtype: str, kernel: str) -> str:
    """The numerics of both sides of a comparison: in float32 the Triton kernel's are its own."""
    if dtype == "float32" and kernel == TRITON:
        return "float32 (Triton from float16 halves, PyTorch IEEE)"
    return dtype_words(dtype)


def graphed(frame: pd.DataFrame) -> pd.Series:
    """Cells whose calls were replayed as a CUDA graph."""
    if "cuda_graph" not in frame.columns:
        return pd.Series(False, frame.index)
    return frame["cuda_graph"].eq(True)


def filled(frame: pd.DataFrame) -> pd.Series:
    """Cells with as many heads and batches as fill a device."""
    return (frame["heads"] > 1) & ~graphed(frame)


def single(frame: pd.DataFrame) -> pd.Series:
    """Cells of one head, launched call by call."""
    return (frame["heads"] == 1) & ~graphed(frame)
