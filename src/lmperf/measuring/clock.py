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


class EventClock:
    """CUDA events around each call, after the L2 cache was overwritten.

    The calls of a slice are queued without waiting, so that the device, not the host, is timed
    wherever the host can keep ahead of it.
    """

    def __init__(self) -> None:
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def times(self, phase: Phase, repetitions: int) -> list[float]:
        pairs = []
        for _ in range(repetitions):
            state = phase.before()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            start.record()
            phase.run(state)
            end.record()
            pairs.append((start, end))
            del state
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs]


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
