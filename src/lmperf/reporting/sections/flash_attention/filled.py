"""F3: rates on the grid that fills a GPU, beside the matmul ceiling of the same numerics."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling, matmul_share
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import (
    dtype_words,
    implementation_words,
    percent,
    phase_words,
    significant,
)
from lmperf.reporting.tables import markdown, value_cells, wide

ROWS = ["seq_len", "batch", "d_head", "mask"]
HEADERS = {"seq_len": "sequence length"}


def filled_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    """A table for each phase and dtype: TFLOP/s and, in brackets, the share of the ceiling."""
    frame = frame[frame["status"] != "unsupported"]
    return "\n\n".join(
        _table(evidence, rows, phase, dtype)
        for phase in in_order("phase", frame["phase"])
        for dtype in in_order("dtype", frame["dtype"])
        if not (rows := frame[(frame["phase"] == phase) & (frame["dtype"] == dtype)]).empty
    )


def _table(evidence: MachineEvidence, frame: pd.DataFrame, phase: str, dtype: str) -> str:
    rates = value_cells(frame, achieved_tflops(frame))
    shares = value_cells(frame, matmul_share(evidence, frame), percent)
    cells = rates + " (" + shares + ")"
    frame = frame.assign(mask=["causal" if c else "full" for c in frame["causal"]])
    frame = frame.sort_values(["d_head", "seq_len", "mask"], kind="stable")
    table = wide(frame, cells.loc[frame.index], ROWS, "implementation")
    names = {n: f"{implementation_words(n)} (TFLOP/s)" for n in table.columns if n not in ROWS}
    ceiling = matmul_ceiling(evidence, dtype)
    beside = "" if ceiling is None else f" of {significant(ceiling)} TFLOP/s"
    caption = (
        f"Table F3: {phase_words(phase)}, {dtype_words(dtype)}, 16k tokens, 2048 channels. In "
        f"brackets: share of the matmul ceiling{beside}"
    )
    return markdown(table.rename(columns=HEADERS | names), caption, left=["mask"])
