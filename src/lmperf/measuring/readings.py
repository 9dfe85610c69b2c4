"""Judges readings of the references: how fast device and host are, apart from any benchmark.

A reading is taken before, between and after the rounds of a phase (`lmperf.measuring.reference`).
Every disturbance makes a reading longer, so a slow one is taken again and the shorter times count.

The device is compared with its usual times: the medians of the run so far. A single first reading
would not do: it may be cold, or lucky, and would then mark every row of the run. The host is
compared with its best times, in this run and in earlier runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields

from lmperf.measuring.state import DRIFT, SLOW_HOST

# Readings before the first phase of a run, so that the usual times are known from the start.
_FIRST_READINGS = 5
# Times that a slow reading is taken again.
_RETAKES = 2
_DEVICE, HOST = ("matmul_ms", "copy_ms"), ("launch_us", "python_us")


@dataclass(frozen=True)
class Reading:
    """Times of the references; None: not measured.

    Attributes:
        matmul_ms, copy_ms: ms of the reference cell's matmul and copy.
        launch_us: us of an empty launch; None except on CUDA.
        python_us: us of a fixed loop in Python.
    """

    matmul_ms: float | None = None
    copy_ms: float | None = None
    launch_us: float | None = None
    python_us: float | None = None

    def merged(self, other: Reading, choose: Callable = min) -> Reading:
        """Return `choose` (min or max) of both readings, time by time."""
        pairs = ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return Reading(*(_chosen(choose, pair) for pair in pairs))


class References:
    """Compares readings with the usual times of the device and the best times of the host.

    Args:
        device: cuda, mps or cpu.
        best: `launch_us` and `python_us` -> the shortest time known from earlier runs.
    """

    def __init__(self, device: str, best: Mapping[str, float]):
        self._device, self._best = device, dict(best)
        self._known: dict[str, list[float]] = {name: [] for name in _DEVICE}
        self._count = 0

    def read(self, take: Callable[[], Reading | None]) -> Reading | None:
        """Take a reading, again if it is slow, and return the shortest of each of its times.

        The first call takes a few readings, to learn the usual times. None: `take` returned None.
        """
        for _ in range(_FIRST_READINGS - 1 if self._count == 0 else 0):
            if self._learn(take()) is None:
                return None
        found = take()
        for _ in range(_RETAKES):
            if found is None or not (self.drifted(found) or self.slow_host(found)):
                break
            found = found.merged(take() or found)
        return self._learn(found)

    def device_ratio(self, reading: Reading) -> float | None:
        """Return the ratio of the device's times to its usual times, the larger of the two."""
        usual = {name: statistics.median(known) for name, known in self._known.items() if known}
        return _largest_ratio(reading, usual)

    def host_ratio(self, reading: Reading) -> float | None:
        """Return the ratio of the host's times to its best times, the larger of the two."""
        return _largest_ratio(reading, self._best)

    def drifted(self, reading: Reading) -> bool:
        """Return whether the device is slower than usual by more than `state.DRIFT`."""
        return (self.device_ratio(reading) or 1.0) > 1 + DRIFT[self._device]

    def slow_host(self, reading: Reading) -> bool:
        """Return whether the host is slower than its best by more than `state.SLOW_HOST`."""
        return (self.host_ratio(reading) or 1.0) > 1 + SLOW_HOST[self._device]

    def _learn(self, reading: Reading | None) -> Reading | None:
        times = {name: time for name, time in asdict(reading or Reading()).items() if time}
        self._count += bool(times)
        for name, time in times.items():
            if name in HOST:
                self._best[name] = min(time, self._best.get(name, time))
            else:
                self._known[name].append(time)
        return reading


def _chosen(choose: Callable, pair: tuple[float | None, ...]) -> float | None:
    return choose((time for time in pair if time is not None), default=None)


def _largest_ratio(reading: Reading, base: Mapping[str, float]) -> float | None:
    times = asdict(reading)
    return max((times[name] / base[name] for name in base if times[name]), default=None)
