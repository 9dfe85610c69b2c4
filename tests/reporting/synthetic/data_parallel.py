"""Make rows of steps that all-reduce gradients: a known share of each step is communication."""

from __future__ import annotations

import pandas as pd

from lmperf.transformer.sizes import SIZES
from synthetic.builder import Builder

SHAPES = {size.short: size for size in SIZES.values()}
# Implementation -> time of a step relative to that of one rank at its part of the batch.
STEPS = {
    "one_by_one": 1.27,
    "flat": 1.25,
    "overlapped": 1.04,
    "overlapped_compiled": 1.04,
    "bucket_1": 1.05,
    "bucket_10": 1.04,
    "bucket_100": 1.02,
    "bucket_1000": 1.08,
    "ddp": 1.03,
    "fsdp2": 1.10,
}


def steps(build: Builder, size: str, batch: int, ranks: int, alone: bool = True) -> pd.DataFrame:
    """Rows of `distributed` at context 512, bf16 autocast.

    alone: whether the step of one rank at its part of the batch was measured.
    """
    ms = SHAPES[size].parameters() / 1e7
    cell = {"size": size, "context_length": 512, "dtype": "autocast_bfloat16"}
    several = {"batch": batch, "ranks": ranks}
    one = {"batch": batch // ranks, "ranks": 1}
    found = [(several, name, factor) for name, factor in STEPS.items()]
    found += [(one, name, 1.0) for name in ("one_rank", "one_rank_compiled") if alone]
    rows = []
    for sizes, name, factor in found:
        row = {**cell, **sizes, "implementation": name, "phase": "train_step"}
        gate = {"max_error": 1e-4, "error_bound": 1e-3}
        timed = build.timed(factor * ms, build.next_pass())
        rows.append({**row, **timed, **build.sustained(factor * ms, True), **gate})
    axes = ["size", "context_length", "batch", "ranks", "dtype"]
    frame = pd.DataFrame(rows)
    return frame[[*axes, *(name for name in frame if name not in axes)]]


def ledger(size: str, batch: int, ranks: int) -> pd.DataFrame:
    """The row of `distributed_overlap` of gradients reduced one by one: nothing is hidden."""
    ms = 1.05 * SHAPES[size].parameters() / 1e7
    cell = {"size": size, "context_length": 512, "batch": batch, "ranks": ranks}
    named = {"dtype": "autocast_bfloat16", "implementation": "one_by_one", "phase": "train_step"}
    times = {"step_ms": 1.27 * ms, "compute_ms": ms, "exposed_ms": 0.27 * ms, "hidden_ms": 0.0}
    times["status"] = "ok"
    return pd.DataFrame([{**cell, **named, **times}])
