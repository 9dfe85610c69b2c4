"""The gate of a row: a timing is shown only where its result was found right, and can be true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.evidence.plausible import KIND
from lmperf.reporting.evidence import row_names
from lmperf.reporting.numbers import absent, error, significant

FAILED = ("failed_check", "nan")


@dataclass(frozen=True)
class GateSummary:
    """How many rows of a benchmark were gated, and the names of those that failed."""

    gated: int
    red: list[str]


def red(frame: pd.DataFrame) -> pd.Series:
    """Rows whose gate failed: by status, by an error above its bound, or a bound never checked;
    and rows that are faster than possible."""
    failed = _is_failed(frame) | _is_impossible(frame)
    if "max_error" in frame and "error_bound" in frame:
        error, bound = (frame[name].to_numpy(float) for name in ("max_error", "error_bound"))
        failed |= ~np.isnan(bound) & _is_ok(frame) & ~(error <= bound)
    return pd.Series(failed, frame.index)


def impossible(frame: pd.DataFrame) -> pd.Series:
    """Rows whose time is below what the machine needs at least (see ``evidence.plausible``)."""
    return pd.Series(_is_impossible(frame), frame.index)


def shown(frame: pd.DataFrame) -> pd.Series:
    """Rows whose timing may be shown: status ok and no red gate."""
    return ~red(frame) & _is_ok(frame)


def gated(frame: pd.DataFrame) -> pd.Series:
    """Rows that were checked against a reference, or found to be faster than possible."""
    checked = _is_failed(frame) | _is_impossible(frame)
    if "error_bound" in frame:
        checked |= frame["error_bound"].notna().to_numpy()
    return pd.Series(checked, frame.index)


def summary(frame: pd.DataFrame) -> GateSummary:
    """Counts and names of the gates of one benchmark."""
    failed = frame[red(frame)]
    reasons = [_reason(row) for row in failed.to_dict("records")]
    names = [f"{n} ({why})" for n, why in zip(row_names(failed), reasons, strict=True)]
    return GateSummary(int(gated(frame).sum()), names)


# Of arrays: these are asked of every table, where joining series by their index takes longer.
def _is_ok(frame: pd.DataFrame) -> np.ndarray:
    return (frame["status"] == "ok").to_numpy(bool)


def _is_failed(frame: pd.DataFrame) -> np.ndarray:
    return frame["status"].isin(FAILED).to_numpy(bool)


def _is_impossible(frame: pd.DataFrame) -> np.ndarray:
    if "floor_ms" not in frame or "median_ms" not in frame:
        return np.zeros(len(frame), bool)
    faster = frame["median_ms"].to_numpy(float) < frame["floor_ms"].to_numpy(float)
    return faster & _is_ok(frame)


def _reason(row: dict) -> str:
    """The error over its bound, with PyTorch's own where that is known; else what was wrong."""
    if row["status"] == "ok" and row.get("median_ms", 0.0) < row.get("floor_ms", 0.0):
        time, floor = significant(row["median_ms"]), significant(row["floor_ms"])
        return f"{KIND}: {time} ms, where it takes at least {floor} ms"
    found, bound, own = (row.get(name) for name in ("max_error", "error_bound", "pytorch_error"))
    over = not (absent(found) or absent(bound)) and found > bound
    if not over and isinstance(row.get("reason"), str):
        return row["reason"]
    pytorch = "" if absent(own) else f", PyTorch's own {error(own)}"
    return f"error {error(found)}, bound {error(bound)}{pytorch}"
