"""Make rows of the first train steps of a process: a slow first step, and reserved memory."""

from __future__ import annotations

import itertools

import pandas as pd

from synthetic.builder import SIZES, Builder

PART_COST = {"forward": 1.0, "backward": 2.0, "optimizer": 0.3}
COLD_MS = {"forward": 240.0, "backward": 70.0, "optimizer": 12.0}
STEPS = 15


def warmup(
    build: Builder, machine: dict, sizes, dtypes, context=256, batch=4, reserves=True
) -> pd.DataFrame:
    """Rows of STEPS train steps per size and dtype; the first one includes a cold start.

    reserves: whether the first two steps reserve memory.
    """
    rows = []
    for size, dtype, step in itertools.product(sizes, dtypes, range(1, STEPS + 1)):
        parameters, _, layers = SIZES[size]
        flops = 2 * parameters * batch * context
        rate = machine["rates"][dtype.removeprefix("autocast_")]
        parts = {
            f"{part}_ms": max(flops * cost / rate / 5e8, 0.25 * layers * cost)
            * (1 + abs(build.random.gauss(0, 0.004)))
            * (1.05 if step == 2 else 1.0)
            + (COLD_MS[part] if step == 1 else 0.0)
            for part, cost in PART_COST.items()
        }
        share = {1: 1.0, 2: 0.05}.get(step, 0.0) if reserves else 0.0
        rows.append(
            {
                "size": size,
                "context_length": context,
                "batch": batch,
                "dtype": dtype,
                "implementation": "eager",
                "phase": "train_step",
                "step": step,
                "status": "ok",
                "reason": None,
                "step_ms": sum(parts.values()),
                **parts,
                "reserved_mib": share * 16 * parameters / 2**20,
            }
        )
    return pd.DataFrame(rows)
