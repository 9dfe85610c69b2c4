"""The three kinds of cells: one head, one head replayed as a CUDA graph, a grid that fills."""

from __future__ import annotations

import pandas as pd


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
