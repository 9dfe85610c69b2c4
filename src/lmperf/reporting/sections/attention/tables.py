"""A1: plain attention; A2: the same compiled and in other numerics, side by side."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_order, in_reading_order
from lmperf.reporting.numbers import (
    EMPTY,
    dtype_words,
    implementation_words,
    phase_words,
    significant,
)
from lmperf.reporting.sections.attention.limit import limit_table, steps_table
from lmperf.reporting.sections.comparisons import Comparison
from lmperf.reporting.speedup import Speedups, compared, interval_words
from lmperf.reporting.tables import (
    joined,
    markdown,
    reasons,
    shared_axes,
    status_words,
    timing_cells,
    wide,
)

CELL = ["d_head", "seq_len", "batch", "causal"]
HEADERS = {"seq_len": "sequence length"}
REFERENCE = "eager"


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``a1`` per dtype, ``a2`` per phase, ``numerics``, ``a3``, ``a4``, ``reasons``."""
    frame = in_reading_order(evidence.frame("attention"), first=CELL)
    eager = frame[frame["implementation"] == REFERENCE]
    dtypes = in_order("dtype", eager["dtype"])
    phases = in_order("phase", frame["phase"])
    speed = compared(evidence, "attention", "implementation", REFERENCE)
    name = "Table A2, speed-ups of the numerics"
    numerics = Comparison(evidence, "attention", "dtype", "float32", CELL, name, HEADERS)
    return {
        "a1": "\n\n".join(_plain(eager[eager["dtype"] == dtype], dtype) for dtype in dtypes),
        "a2": "\n\n".join(
            _side_by_side(frame[frame["phase"] == phase], phase, speed) for phase in phases
        ),
        "numerics": numerics.tables(),
        "a3": limit_table(evidence),
        "a4": steps_table(evidence),
        "reasons": reasons(frame),
    }


def _plain(frame: pd.DataFrame, dtype: str) -> str:
    constant, rows = shared_axes(frame, CELL)
    table = wide(frame, timing_cells(frame), rows, "phase")
    memory = _held(frame, rows)
    table = joined(table, memory, rows)
    table = joined(table, _states(frame, rows), rows)
    headers = {phase: f"{phase_words(phase)} (ms)" for phase in frame["phase"].unique()}
    headers["memory"] = "memory before backward (MiB)"
    caption = f"Table A1: plain PyTorch attention, {dtype_words(dtype)}{constant}. Mean ± std"
    return markdown(table.rename(columns={**headers, **HEADERS}), caption)


def _held(frame: pd.DataFrame, rows: list[str]) -> pd.DataFrame:
    """What is allocated when the backward begins."""
    backward = frame[frame["phase"] == "backward"]
    table = backward[rows].assign(memory=[significant(v) for v in backward["saved_mib"]])
    return table.drop_duplicates(rows, keep="last")


def _states(frame: pd.DataFrame, rows: list[str]) -> pd.DataFrame:
    """The status of a cell: that of its first phase that is not ok."""
    words = status_words(frame).str.replace(r" \(.*", "", regex=True)
    table = frame[rows].assign(status=words)
    failed = table[table["status"] != "ok"]
    return pd.concat([failed, table]).drop_duplicates(rows)


def _side_by_side(frame: pd.DataFrame, phase: str, speed: Speedups) -> str:
    others = [n for n in in_order("implementation", frame["implementation"]) if n != REFERENCE]
    if not others:
        return ""
    constant, rows = shared_axes(frame, CELL)
    table = frame[rows].drop_duplicates()
    times = timing_cells(frame)
    for dtype in in_order("dtype", frame["dtype"]):
        for name in [REFERENCE, *others]:
            chosen = (frame["dtype"] == dtype) & (frame["implementation"] == name)
            columns = _columns(frame[chosen], rows, times, speed.words, dtype, name)
            table = joined(table, columns, rows) if chosen.any() else table
    interval = interval_words(speed.within(frame))
    brackets = f" In brackets: {interval}." if interval else ""
    caption = f"Table A2: {phase_words(phase)} (ms, mean ± std) and speed-ups{constant}.{brackets}"
    return markdown(table.rename(columns=HEADERS), caption)


def _columns(
    frame: pd.DataFrame,
    rows: list[str],
    times: pd.Series,
    words: pd.Series,
    dtype: str,
    name: str,
) -> pd.DataFrame:
    label = f"{implementation_words(name)}, {dtype_words(dtype)}"
    table = frame[rows].assign(**{f"{label} (ms)": times.loc[frame.index]})
    if name != REFERENCE and (words.loc[frame.index] != EMPTY).any():
        table[f"speed-up, {label}"] = words.loc[frame.index]
    return table.drop_duplicates(rows, keep="last")
