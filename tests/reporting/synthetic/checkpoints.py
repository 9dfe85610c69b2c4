"""Make rows of activation checkpointing, and of the leaderboard's step."""

import pandas as pd

from lmperf.transformer.memory import predicted_memory
from lmperf.transformer.sizes import SIZES
from synthetic.builder import GIB, Builder

# Implementation -> time of a step relative to none.
TIMES = {
    "eager": 1.0,
    "checkpoint_1": 1.32,
    "checkpoint_2": 1.31,
    "checkpoint_4": 1.30,
    "nested_4": 1.62,
}
SHAPES = {size.short: size for size in SIZES.values()}


def checkpointing(build: Builder, machine: dict, sizes, context: int, dtype: str):
    """Steps whose peak is up to 2 % above the closed form, or that run out of memory."""
    kind, rows = "cuda" if machine["device"] else "cpu", []
    for size in sizes:
        shape, together = SHAPES[size], build.next_pass()
        for name, factor in TIMES.items():
            layers = int(name.rpartition("_")[2]) if "_" in name else 0
            cell = shape, context, 4, dtype, "train_step", kind
            nested = name.startswith("nested")
            peak = predicted_memory(*cell, segment=layers, nested=nested)["peak"]
            row = {"size": size, "context_length": context, "batch": 4, "dtype": dtype}
            row |= {"implementation": name, "phase": "train_step"}
            if peak > machine["memory"]:
                rows.append({**row, **build.oom(4 * GIB, GIB / 2)})
                continue
            ms = factor * shape.parameters() / 1e7
            timing = build.timed(ms, together, again=name == "eager")
            found = {"peak_mib": peak * (1 + build.random.uniform(0, 0.02)) / 2**20}
            rows.append({**row, **timing, **found, "max_error": 1e-4, "error_bound": 1e-3})
    return pd.DataFrame(rows)


# Implementation of `leaderboard` -> seconds of a step, GiB at its peak, blocks that keep matmuls.
STEPS = {
    "recompute_all": (11.4, 76.5, 0),
    "keep_attention": (9.8, 89.6, 0),
    "keep_matmuls": (9.6, 128.0, 9),
}


def leaderboard(build: Builder) -> pd.DataFrame:
    together = build.next_pass()
    cell = {"size": "8.1B", "context_length": 32768, "batch": 2, "dtype": "bfloat16"}
    return pd.DataFrame(
        {
            **cell,
            **{"implementation": name, "phase": "train_step"},
            **build.timed(1e3 * seconds, together, again=name == "recompute_all"),
            **{"flops": 4.7448e15, "tokens": 65536, "parameters": 8.126e9},
            **{"peak_mib": 1024 * peak, "matmul_blocks": blocks},
            **{"max_error": 0.04, "error_bound": 0.1},
        }
        for name, (seconds, peak, blocks) in STEPS.items()
    )
