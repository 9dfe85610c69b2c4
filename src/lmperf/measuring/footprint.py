"""Measures the memory of a timed phase: resident, saved for the backward pass, and peak."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

import torch

from lmperf.benchmark import Phase, Workload
from lmperf.measuring.memory import LiveTensors

_MIB = 2**20
# Most calls, and most ms of calls, after the first (which may fill caches) that test whether memory
# grows. They are at least two, and more than a slice has: a leak may grow in every seventh call.
_FURTHER_CALLS, _FURTHER_MS = 24, 600.0
# Times that the memory is read after the first call. A collection of garbage, which may precede a
# reading, takes up to a second.
_READS = 3
# Longer calls are not repeated to test for growth: a step that leaks runs out of memory anyway.
_LONGEST_MS = 100.0
# Looks at memory that has grown, and seconds between them.
_SETTLING_TRIES, _SETTLING_S = 10, 0.005


def import_dispatch() -> None:
    """Use a dispatch mode: the first use in a process imports for seconds, which is not timed."""
    with LiveTensors():
        torch.zeros(1)


def requested_bytes() -> int:
    """Return the bytes of live CUDA tensors as they were requested.

    The allocator's blocks are larger by up to 1 MiB each, depending on what was freed before: their
    sum differs from call to call without any leak.
    """
    return torch.cuda.memory_stats().get("requested_bytes.all.current", 0)


def resident_bytes(resident: list[Any]) -> int:
    """Return the bytes held by tensors, modules and optimizers; each storage counts once."""
    live = LiveTensors()
    live.register(resident)
    return live.live_bytes


def phase_memory(
    workload: Workload,
    phase: Phase,
    device: str,
    longest: Callable[[float], float] = lambda ms: ms,
) -> dict[str, Any]:
    """Return the memory of one call of a phase: resident, saved and peak MiB, and live bytes.

    `resident_mib` is the memory of the tensors that the workload keeps, `saved_mib` the memory
    alive when the phase starts (for a backward: after the forward pass), `peak_mib` the maximum
    while the phase runs. They count tensors of this workload only. `live_bytes` lists the bytes
    alive after the first and a few of the further calls, once their results are freed. Empty for
    MPS, and on a CPU for a compiled workload, which `LiveTensors` cannot see.

    longest: returns the largest of the ms of a call in the processes that run it together, which
        must all run the same number of further calls.
    """
    if device == "cuda":
        return _by_allocator(workload, phase, longest)
    if device == "cpu" and not workload.compiles:
        return _by_live_tensors(workload, phase, longest)
    return {}


def _by_allocator(
    workload: Workload, phase: Phase, longest: Callable[[float], float]
) -> dict[str, Any]:
    resident = resident_bytes(workload.resident)
    torch.cuda.synchronize()
    # Memory that other workloads of the group keep alive; it must not count here.
    others = torch.cuda.memory_allocated() - resident
    state = phase.before()
    torch.cuda.synchronize()
    saved = torch.cuda.memory_allocated() - others
    torch.cuda.reset_peak_memory_stats()
    began = perf_counter()
    phase.run(state)
    torch.cuda.synchronize()
    took_ms = longest((perf_counter() - began) * 1e3)
    peak = torch.cuda.max_memory_allocated() - others
    del state
    after = _after_calls(phase, requested_bytes, took_ms)
    return _columns(resident, saved, peak, after)


def _by_live_tensors(
    workload: Workload, phase: Phase, longest: Callable[[float], float]
) -> dict[str, Any]:
    import_dispatch()
    live = LiveTensors()
    live.register(workload.resident)
    resident = live.live_bytes
    with live:
        state = phase.before()
        saved = live.peak_bytes = live.live_bytes
        began = perf_counter()
        phase.run(state)
        took_ms = longest((perf_counter() - began) * 1e3)
        peak = live.peak_bytes
        del state
        after = _after_calls(phase, lambda: live.live_bytes, took_ms)
    return _columns(resident, saved, peak, after)


def _after_calls(phase: Phase, live_bytes: Callable[[], int], took_ms: float) -> list[int]:
    further = min(_FURTHER_CALLS, max(2, int(_FURTHER_MS / max(took_ms, 1e-3))))
    found = [live_bytes()]
    if took_ms > _LONGEST_MS:
        return found
    reads = min(further, _READS)
    for number in range(reads):
        for _ in range(further * number // reads, further * (number + 1) // reads):
            phase.run(phase.before())
        found.append(live_bytes())
        if found[-1] > found[-2]:
            found[-1] = settled(live_bytes, found[-2])
    return found


def settled(live_bytes: Callable[[], int], before: int) -> int:
    """Return the live bytes once garbage is collected and other threads have freed their tensors.

    Garbage is not a leak. A thread of gloo or NCCL may hold the tensors of a collective for some
    milliseconds after its end.

    before: bytes that were alive earlier: with no more than these, nothing leaks.
    """
    gc.collect()
    for _ in range(_SETTLING_TRIES):
        if live_bytes() <= before:
            break
        sleep(_SETTLING_S)
    return live_bytes()


def _columns(resident: int, saved: int, peak: int, after: list[int]) -> dict[str, Any]:
    sizes = {"resident_mib": resident, "saved_mib": saved, "peak_mib": peak}
    return {**{name: size / _MIB for name, size in sizes.items()}, "live_bytes": after}
