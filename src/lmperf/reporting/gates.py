"""The gate of a row: a timing is shown only where its result was found right."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from lmperf.reporting.evidence import row_names
from lmperf.reporting.numbers import absent, error

FAILED = ("failed_check", "nan")


@dataclass(frozen=True)
class GateSummary:
    """How many rows of a benchmark were gated, and the names of those that failed."""

    gated: int
    red: list[str]


def red(frame: pd.DataFrame) -> pd.Series:
    """Rows whose gate failed: by status, by an error above its bound, or a bound never checked."""
    failed = frame["status"].isin(FAILED)
    if {"max_error", "error_bound"} <= set(frame.columns):
        bounded = frame["error_bound"].notna() & (frame["status"] == "ok")
        failed |= bounded & ~(frame["max_error"] <= frame["error_bound"])
    return failed


def shown(frame: pd.DataFrame) -> pd.Series:
    """Rows whose timing may be shown: status ok and no red gate."""
    return (frame["status"] == "ok") & ~red(frame)


def gated(frame: pd.DataFrame) -> pd.Series:
    """Rows that were checked against a reference."""
    if "error_bound" not in frame.columns:
        return frame["status"].isin(FAILED)
    return frame["error_bound"].notna() | frame["status"].isin(FAILED)


def summary(frame: pd.DataFrame) -> GateSummary:
    """Counts and names of the gates of one benchmark."""
    failed = frame[red(frame)]
    reasons = [_reason(row) for row in failed.to_dict("records")]
    names = [f"{n} ({why})" for n, why in zip(row_names(failed), reasons, strict=True)]
    return GateSummary(int(gated(frame).sum()), names)


def _reason(row: dict) -> str:
    """The error over its bound, with PyTorch's own where that is known; else what was wrong."""
    found, bound, own = (row.get(name) for name in ("max_error", "error_bound", "pytorch_error"))
    over = not (absent(found) or absent(bound)) and found > bound
    if not over and isinstance(row.get("reason"), str):
        return row["reason"]
    pytorch = "" if absent(own) else f", PyTorch's own {error(own)}"
    return f"error {error(found)}, bound {error(bound)}{pytorch}"
