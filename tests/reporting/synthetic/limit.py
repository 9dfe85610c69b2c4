"""Make rows of the shortest attention that runs out of memory, from the sizes of its tensors."""

from __future__ import annotations

import pandas as pd

MIB = 2**20
BYTES = {"float32": 4, "bfloat16": 2}


def attention_limit(machine: dict, batch: int = 8, d_head: int = 64) -> pd.DataFrame:
    """One row per dtype with the length that runs OOM; without a GPU, the outcome is "not run"."""
    return pd.DataFrame(
        [_row(machine, batch, d_head, dtype) for dtype in machine["rates"] if dtype in BYTES]
    )


def _row(machine: dict, batch: int, d_head: int, dtype: str) -> dict:
    free, width, n = machine["memory"], BYTES[dtype], 1
    while 3 * batch * n * d_head * width + 2 * batch * n * n * width <= free:
        n *= 2
    inputs, scores = 3 * batch * n * d_head * width, batch * n * n * width
    row = {
        "batch": batch,
        "d_head": d_head,
        "dtype": dtype,
        "implementation": "eager",
        "phase": "forward",
        "status": "ok",
        "reason": None,
        "seq_len": n,
        "free_before_mib": free / MIB,
        "predicted_requested_mib": scores / MIB,
        "inputs_mib": inputs / MIB,
        **dict.fromkeys(("scores_mib", "scaled_mib", "softmax_mib"), scores / MIB),
        "output_mib": inputs / 3 / MIB,
    }
    if machine["device"] is None:
        why = "not run: it would take the memory of the whole machine"
        return {**row, "outcome": why, "requested_mib": None, "free_mib": None}
    # The first score-sized tensor may fit, the second does not.
    left = free - inputs
    left -= scores if scores <= left else 0
    out = {"requested_mib": scores / MIB, "free_mib": left / MIB}
    return {**row, "outcome": "out of memory", **out}
