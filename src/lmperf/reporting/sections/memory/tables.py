"""Y1: the measured peak beside the predicted one, by phase."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import EMPTY, dtype_words, phase_words, signed_percent, significant
from lmperf.reporting.tables import (
    joined,
    markdown,
    reasons,
    shared_axes,
    status_words,
    value_cells,
)

CELL = ["size", "context_length", "batch"]
HEADERS = {"context_length": "context (tokens)"}
PHASES = {"forward": "forward only", "train_step": "a whole train step"}


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``y1`` (one table per phase), ``instrument`` in words and ``reasons``."""
    frame = evidence.frame("memory")
    phases = in_order("phase", frame["phase"])
    made = [_phase_table(frame[frame["phase"] == phase], phase) for phase in phases]
    instruments = sorted(frame["instrument"].dropna().unique())
    return {
        "y1": "\n\n".join(made),
        "instrument": " and ".join(instruments) or "not stated",
        "reasons": reasons(frame),
    }


def _phase_table(frame: pd.DataFrame, phase: str) -> str:
    constant, rows = shared_axes(frame, CELL)
    table = frame[rows].drop_duplicates()
    for dtype in in_order("dtype", frame["dtype"]):
        columns = _columns(frame[frame["dtype"] == dtype], rows, dtype_words(dtype))
        table = joined(table, columns, rows)
    caption = f"Table Y1: peak memory of {PHASES.get(phase, phase_words(phase))}{constant}"
    return markdown(table.rename(columns=HEADERS), caption)


def _columns(frame: pd.DataFrame, rows: list[str], words: str) -> pd.DataFrame:
    measured = value_cells(frame, frame["peak_mib"])
    states = status_words(frame)
    measured = measured.where(measured != EMPTY, states.where(states != "ok", EMPTY))
    difference = frame["peak_mib"] / frame["predicted_mib"] - 1
    table = frame[rows].assign(
        **{
            f"measured, {words} (MiB)": measured,
            f"predicted, {words} (MiB)": [significant(v) for v in frame["predicted_mib"]],
            f"difference, {words}": value_cells(frame, difference, signed_percent),
        }
    )
    return table.drop_duplicates(rows, keep="last")
