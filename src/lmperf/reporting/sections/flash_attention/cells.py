"""The three kinds of cells: one head launched call by call, the same as graphs, a full GPU."""

from __future__ import annotations

import pandas as pd


def graphed(frame: pd.DataFrame) -> pd.Series:
    """Rows whose calls were replayed as a CUDA graph."""
    if "cuda_graph" not in frame:
        return pd.Series(False, index=frame.index)
    return frame["cuda_graph"].fillna(False).astype(bool)


def filled(frame: pd.DataFrame) -> pd.Series:
    """Rows of the grid of 16k tokens and 2048 channels (F3)."""
    return (frame["heads"] > 1) & ~graphed(frame)


def one_head(frame: pd.DataFrame) -> pd.Series:
    """Rows of batch 1 and one head, launched call by call (F1, F2)."""
    return ~filled(frame) & ~graphed(frame)
