"""F4: errors against float64 by tensor, beside those of plain PyTorch in the same dtype."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import EMPTY, dtype_words, error, implementation_words
from lmperf.reporting.tables import joined, markdown, shared_axes, status_words

TENSORS = {"out": "output", "lse": "logsumexp", "dq": "dQ", "dk": "dK", "dv": "dV"}
CELL = ["seq_len", "d_head", "batch", "heads"]
HEADERS = {"seq_len": "sequence length"}
REFERENCE = "eager"


def worst_errors(frame: pd.DataFrame, rows: list[str]) -> pd.DataFrame:
    """The largest error of each tensor over the phases of a cell, one line a cell."""
    columns = [*(f"error_{name}" for name in TENSORS), "max_error", "error_bound"]
    return frame.groupby(rows, sort=False, dropna=False)[columns].max().reset_index()


def gate_table(frame: pd.DataFrame, kernel: str, words: str) -> str:
    """One line a cell: error of our kernel / error of PyTorch (eager), per tensor."""
    ours = frame[frame["implementation"] == kernel]
    ours = ours[gates.gated(ours)]
    if ours.empty:
        return ""
    constant, rows = shared_axes(ours, CELL)
    plain = frame[frame["implementation"] == REFERENCE]
    errors = worst_errors(ours, rows)
    theirs = errors[rows].merge(worst_errors(plain, rows), on=rows, how="left")
    table = errors[rows].copy()
    for name, label in TENSORS.items():
        column = f"error_{name}"
        if errors[column].notna().any():
            pairs = zip(errors[column], theirs[column], strict=True)
            table[label] = [f"{error(a)} / {error(b)}" for a, b in pairs]
    table = _verdict_columns(table, errors, ours, rows)
    caption = (
        f"Table F4: error against float64, {implementation_words(kernel)} / "
        f"{implementation_words(REFERENCE)}, {words}{constant}"
    )
    return markdown(table.rename(columns=HEADERS), caption, left=["gate"])


def _verdict_columns(
    table: pd.DataFrame, errors: pd.DataFrame, frame: pd.DataFrame, rows: list[str]
) -> pd.DataFrame:
    table = table.assign(
        **{
            "worst tensor's error": [error(v) for v in errors["max_error"]],
            "its bound": [error(v) for v in errors["error_bound"]],
        }
    )
    failed = frame.loc[gates.red(frame), rows].drop_duplicates().assign(gate="failed")
    table = joined(table, failed, rows)
    return table.assign(gate=table["gate"].replace(EMPTY, "passed"))


def check_table(evidence: MachineEvidence) -> str:
    """The kernel tests, one line per dtype, mask, layout and case; empty without evidence."""
    frame = evidence.frame("flash_attention_check")
    if frame is None:
        return ""
    axes = ["batch", "heads", "seq_len", "d_head", "causal", "layout"]
    table = frame[axes].assign(numerics=[dtype_words(d) for d in frame["dtype"]])
    for name, label in TENSORS.items():
        if frame[f"error_{name}"].notna().any():
            table[label] = [error(v) for v in frame[f"error_{name}"]]
    table["worst tensor's error"] = [error(v) for v in frame["max_error"]]
    table["its bound"] = [error(v) for v in frame["error_bound"]]
    table["gate"] = status_words(frame).replace("ok", "passed")
    caption = "Table F4, second part: the kernel's own tests, error against float64"
    return markdown(table.rename(columns=HEADERS), caption, left=["layout", "numerics", "gate"])
