"""Timing in turn: the cases of a group, round after round, with the first of them once more.

In each round every case runs a slice of repetitions of a phase, in rotating order. The median of
each slice is kept: the ratio of two cases is taken round by round, so that what drifts with the
machine drifts in both. The group's first case runs a second slice in each round: the ratio of its
two slices is the noise floor.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lmperf.benchmark import Phase, Workload
from lmperf.measuring.clock import EventClock, WallClock

# With six rounds the smallest and the largest enclose the median of all with 97 % certainty.
ROUNDS = 6
_MAX_REPETITIONS = 40
# A longer call is not run once more against itself: it would cost more than it tells.
_LONGEST_AGAIN_MS = 250.0


@dataclass(frozen=True)
class Pace:
    """How long to warm up and how long a slice is, in milliseconds; by clock and device."""

    warm_up_ms: float
    slice_ms: float


PACES = {
    ("kernel", "cuda"): Pace(25, 10),
    ("step", "cuda"): Pace(150, 60),
    ("kernel", "cpu"): Pace(30, 30),
    ("step", "cpu"): Pace(100, 30),
}


def pace_of(kind: str, device: str) -> Pace:
    return PACES[kind, "cuda" if device == "cuda" else "cpu"]


@dataclass
class Timings:
    """Times of one case and phase in milliseconds: all of them, and the medians by round."""

    times: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)

    def statistics(self) -> dict[str, float | int | str]:
        return {
            "median_ms": statistics.median(self.times),
            "mean_ms": statistics.fmean(self.times),
            "std_ms": statistics.stdev(self.times),
            "p20_ms": quantile(self.times, 0.2),
            "p80_ms": quantile(self.times, 0.8),
            "repetitions": len(self.times),
            "rounds_ms": ";".join(map(repr, self.rounds)),
            "again_ms": ";".join(map(repr, self.again)),
        }


def quantile(values: Sequence[float], fraction: float) -> float:
    """Quantile by linear interpolation between order statistics."""
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def warm_up(clock: EventClock | WallClock, phase: Phase, pace: Pace) -> float:
    """Run a phase until `pace.warm_up_ms` have passed; the time of the last call in ms."""
    start = time.perf_counter()
    while True:
        (last,) = clock.times(phase, 1)
        if (time.perf_counter() - start) * 1e3 >= pace.warm_up_ms:
            return last


def in_turn(
    clock: EventClock | WallClock,
    workloads: Sequence[tuple[Workload, Phase]],
    pace: Pace,
    announce: Callable[[int], None],
) -> list[Timings]:
    """Time one phase of several workloads in turn, `ROUNDS` times.

    `announce` is told the position of the workload that runs next, outside the clock.
    """
    repetitions = []
    for position, (workload, phase) in enumerate(workloads):
        announce(position)
        with entered(workload):
            repetitions.append(_repetitions(warm_up(clock, phase, pace), pace))
    results = [Timings() for _ in workloads]

    def run_slice(position: int) -> list[float]:
        announce(position)
        workload, phase = workloads[position]
        with entered(workload):
            return clock.times(phase, repetitions[position])

    for turn in range(ROUNDS):
        for offset in range(len(workloads)):
            position = (turn + offset) % len(workloads)
            times = run_slice(position)
            results[position].times += times
            results[position].rounds.append(statistics.median(times))
        if results[0].rounds[0] <= _LONGEST_AGAIN_MS:
            results[0].again.append(statistics.median(run_slice(0)))
    return results


def _repetitions(call_ms: float, pace: Pace) -> int:
    return max(1, min(_MAX_REPETITIONS, int(pace.slice_ms / max(call_ms, 1e-6))))


def entered(workload: Workload):
    """The context in which a workload's calls run: its precision flags, for example."""
    return workload.context() if workload.context else contextlib.nullcontext()
