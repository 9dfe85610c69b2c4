"""Measures the peak memory of a call: of CUDA's caching allocator, elsewhere of live tensors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch

from lmperf.benchmark import Phase, Workload
from lmperf.measuring.live_tensors import LiveTensors, Resident

CACHING_ALLOCATOR = "caching allocator"
LIVE_TENSORS = "live tensors"


def peak_memory(
    run: Callable[[], object], device: torch.device | str, resident: Iterable[Resident] = ()
) -> int:
    """Call `run` once, and return the most bytes that were allocated during the call.

    Exceptions of `run` propagate.

    Args:
        device: the device that `run` uses.
        resident: existing tensors, modules and optimizers to count. Ignored on CUDA, where the
            allocator counts all live memory of the process.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    live = LiveTensors()
    live.register(resident)
    with live:
        run()
    return live.peak_bytes


@cache
def import_dispatch() -> None:
    """Use a dispatch mode for the first time, which imports for a second, and keep what it imports
    out of later collections of garbage."""
    with LiveTensors():
        torch.zeros(1)
    gc.collect()
    gc.freeze()


def phase_memory(
    work: Workload, prepare: Callable[[], tuple[Phase, Any]], device: str
) -> dict[str, float]:
    """Return the memory of one call of a phase: `resident_mib`, `saved_mib` and `peak_mib`.

    Resident are the tensors that the workload keeps; saved is what is alive when the call begins
    (for a backward: after the forward pass). They count tensors of this workload only. Empty for
    MPS, and on a CPU for a compiled workload, which `LiveTensors` cannot see.

    prepare: prepares a call; returns its phase, and what its `run` takes.
    """
    if device == "cpu":
        import_dispatch()
    live = LiveTensors()
    live.register(work.resident)
    resident = live.live_bytes
    if device == "cuda":
        torch.cuda.synchronize()
        others = torch.cuda.memory_allocated() - resident  # of other workloads
        phase, state = prepare()
        torch.cuda.synchronize()
        saved = torch.cuda.memory_allocated() - others
        peak = peak_memory(lambda: phase.run(state), device) - others
    elif device == "cpu" and not work.compiles:
        with live:
            phase, state = prepare()
            saved = live.peak_bytes = live.live_bytes
            phase.run(state)
        peak = live.peak_bytes
    else:
        return {}
    sizes = {"resident_mib": resident, "saved_mib": saved, "peak_mib": peak}
    return {name: size / 2**20 for name, size in sizes.items()}
