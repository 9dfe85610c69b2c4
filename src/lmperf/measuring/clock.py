"""Clocks: device events with an L2 flush, synchronised wall time, and the processor's own counter.

A clock times `repetitions` calls of a phase one by one. What a call needs first (a forward pass
before a backward, cleared gradients) runs outside the clock. All times are in milliseconds.
"""

from __future__ import annotations

import time

import torch

from lmperf.benchmark import Phase

# Several times the L2 of any present device (60 MB on an H200), so that inputs come from memory.
_FLUSH_BYTES = 256 * 2**20
# At least the clock rate of a present device, so that a wait is at least as long as it is meant to.
_CYCLES_PER_MS = 2_000_000
_LONGEST_LEAD_MS = 3.0


class EventClock:
    """CUDA events around each call, after the L2 cache was overwritten.

    The device waits before each call for as long as the host took to queue the last one, and half
    as long again: what is timed is the device, also where the host is slower.
    """

    def __init__(self) -> None:
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._host_ms: dict[int, float] = {}

    def times(self, phase: Phase, repetitions: int) -> list[float]:
        pairs = [self._queue(phase) for _ in range(repetitions)]
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs]

    def _queue(self, phase: Phase) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        state = phase.before()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        lead_ms = min(1.5 * self._host_ms.get(id(phase), 0.0), _LONGEST_LEAD_MS)
        self._flush.zero_()
        torch.cuda._sleep(int(lead_ms * _CYCLES_PER_MS))
        start.record()
        began = time.perf_counter()
        phase.run(state)
        self._host_ms[id(phase)] = (time.perf_counter() - began) * 1e3
        end.record()
        return start, end


class WallClock:
    """Wall time between two synchronisations of the device, or none to synchronise on a CPU."""

    def __init__(self, device: str) -> None:
        self._synchronize = synchronizer(device)

    def times(self, phase: Phase, repetitions: int) -> list[float]:
        return [self._time(phase) for _ in range(repetitions)]

    def _time(self, phase: Phase) -> float:
        state = phase.before()
        self._synchronize()
        start = time.perf_counter_ns()
        result = phase.run(state)
        self._synchronize()
        elapsed = time.perf_counter_ns() - start
        del result, state  # freeing the graph is not part of the phase
        return elapsed / 1e6


def synchronizer(device: str):
    """The call that waits for all work queued on the device."""
    if device == "cuda":
        return torch.cuda.synchronize
    if device == "mps":
        return torch.mps.synchronize
    return lambda: None


def clock_for(kind: str, device: str) -> EventClock | WallClock:
    """The clock for kernels (`kernel`) or for whole model steps (`step`) on a device."""
    return EventClock() if kind == "kernel" and device == "cuda" else WallClock(device)
