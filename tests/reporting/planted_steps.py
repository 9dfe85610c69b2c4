"""Planted train steps at the ladder's context and batch."""

from __future__ import annotations

import planted

from lmperf.transformer.rungs import IN_FLOAT8, RUNGS

AUTOCAST = "autocast_bfloat16"


def step(size: str, dtype: str, implementation: str, ms: float | None, **values) -> dict[str, str]:
    """A train step of context 1,024 and batch 4.

    values: `waits=True` for one that waits for the CPU; further columns.
    """
    waits = values.pop("waits", False)
    if ms is None:
        values.setdefault("status", "oom")
    else:
        known = {"bound": "host" if waits else "device", "tokens": 4096, "flops": 1e12}
        known |= {"device_ms": ms * (0.8 if waits else 1), "launches": 100, "peak_mib": 1024.0}
        values = known | values
    cell = {"size": size, "context_length": 1024, "batch": 4, "dtype": dtype}
    return planted.row("end_to_end", ms, **(cell | {"implementation": implementation} | values))


def rung(name: str, ms: float | None, size: str = "0.97B", **values) -> dict[str, str]:
    """The step of a rung."""
    found = next(rung for rung in (*RUNGS, *IN_FLOAT8) if rung.name == name)
    return step(size, found.dtype, found.implementation, ms, **values)


def sdpa(ms: float, size: str = "0.97B", **values) -> dict[str, str]:
    """The step with SDPA, compiled by block, which is no rung."""
    return step(size, AUTOCAST, "sdpa_compiled_blocks", ms, **values)


def loss(implementation: str, value: float, size: str = "0.97B", **values) -> dict[str, str]:
    """A loss after 100 steps."""
    about = {"size": size, "context_length": 128, "batch": 2, "implementation": implementation}
    return planted.row("ladder_loss", step=100, loss=value, **(about | values))
