"""Decide which timings a report shows: the correctness gate passed and the time is possible.

The worker's verdict is the status of a row (`lmperf.gate`). Evidence can be edited, so rows whose
values contradict their status, or are faster than the machine allows, count as failed as well
(`evidence.plausible`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.evidence.plausible import KIND, contradicts_bound
from lmperf.gate import FAILED
from lmperf.reporting.evidence import row_names
from lmperf.reporting.numbers import absent, error, significant


@dataclass(frozen=True)
class GateSummary:
    """How many rows of a benchmark passed through a gate, and the names of the red ones."""

    gated: int
    red: list[str]


def red(frame: pd.DataFrame) -> pd.Series:
    """Whether each row is red (its timing is withheld): its gate failed or it is implausible."""
    failed = _is_failed(frame) | _is_impossible(frame)
    if "max_error" in frame and "error_bound" in frame:
        error, bound = (frame[name].to_numpy(float) for name in ("max_error", "error_bound"))
        failed |= _is_ok(frame) & contradicts_bound(error, bound)
    return pd.Series(failed, frame.index)


def impossible(frame: pd.DataFrame) -> pd.Series:
    """Whether each row's time is below the least possible time on the machine (``floor_ms``)."""
    return pd.Series(_is_impossible(frame), frame.index)


def shown(frame: pd.DataFrame) -> pd.Series:
    """Whether a report shows the timing of each row: its status is ok and it is not red."""
    return ~red(frame) & _is_ok(frame)


def gated(frame: pd.DataFrame) -> pd.Series:
    """Whether each row was compared with a reference or is faster than possible."""
    checked = _is_failed(frame) | _is_impossible(frame)
    if "error_bound" in frame:
        checked |= frame["error_bound"].notna().to_numpy()
    return pd.Series(checked, frame.index)


def summary(frame: pd.DataFrame) -> GateSummary:
    """The number of gated rows of one benchmark, and each red row with its reason."""
    failed = frame[red(frame)]
    reasons = [reason(row) for row in failed.to_dict("records")]
    names = [f"{n} ({why})" for n, why in zip(row_names(failed), reasons, strict=True)]
    return GateSummary(int(gated(frame).sum()), names)


def reason(row: dict) -> str:
    """Why a row is red: time and least possible time, the recorded reason, or error and bound."""
    if row["status"] == "ok" and row.get("median_ms", 0.0) < row.get("floor_ms", 0.0):
        time, floor = significant(row["median_ms"]), significant(row["floor_ms"])
        return f"{KIND}: {time} ms, the least possible is {floor} ms"
    found, bound = row.get("max_error"), row.get("error_bound")
    compared = not (absent(found) or absent(bound))
    if isinstance(row.get("reason"), str) and not (compared and found > bound):
        return row["reason"]
    reference = row.get("pytorch_error")
    pytorch = "" if absent(reference) else f", PyTorch's error {error(reference)}"
    return f"error {error(found)}, bound {error(bound)}{pytorch}"


# Arrays instead of series: these run for every table, and aligning series by index is slow.
def _is_ok(frame: pd.DataFrame) -> np.ndarray:
    return (frame["status"] == "ok").to_numpy(bool)


def _is_failed(frame: pd.DataFrame) -> np.ndarray:
    return frame["status"].isin(FAILED).to_numpy(bool)


def _is_impossible(frame: pd.DataFrame) -> np.ndarray:
    if "floor_ms" not in frame or "median_ms" not in frame:
        return np.zeros(len(frame), bool)
    faster = frame["median_ms"].to_numpy(float) < frame["floor_ms"].to_numpy(float)
    return faster & _is_ok(frame)
