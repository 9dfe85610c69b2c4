"""The state of the machine while a slice is timed: clock, power, throttling, other load.

The supervisor samples it beside the worker, never inside it:

    watch = state.watch("cuda", "GPU-...", workers)
    watch.begin()       # right before a slice is requested
    watch.sample()      # while it runs, any number of times
    state = watch.end()

Other load on the host is averaged over the slice, but at least over `_WINDOW_S` up to its end: the
kernel counts idle time in hundredths of a second, and a slice may last three of them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lmperf.measuring.host_load import HostLoad, Reading
from lmperf.measuring.sensors import Processor, Sample, sensor

# NVML's throttle reasons: power cap, slow-down, software and hardware thermal limit, power brake.
# Not among them: idle, and clocks set by a user.
CAPPED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
# A device also reports its power cap for a single clock step, which is less than 1 %.
CAPPED_CLOCK = 0.97
# Other load above which a slice is marked, as a share of the usable cores. On a CPU the cores
# themselves are timed: on two idle cores 600 slices of 30 ms read at most 0.03, next to one busy
# process 0.5. With a device, the host needs cores only to queue work.
LOADED = {"cpu": 0.05, "cuda": 0.5, "mps": 0.5}
# How far the reference cell (`measuring.reference`) may be from its first times. Of 265 calls on
# two cores of an otherwise idle virtual machine, 9 % differed by more than 0.25 from the median,
# because its host is shared; 0.1 would mark every second row there. A GPU is not shared.
DRIFT = {"cpu": 0.25, "cuda": 0.10, "mps": 0.25}
_WINDOW_S = 0.3
_APART_S = 0.05
# Older readings say nothing about the load during a slice.
_FORGOTTEN_S = 2.0


@dataclass(frozen=True)
class State:
    """The machine during a slice; None where unknown.

    Attributes:
        clock_mhz: the SM clock, or the mean clock of the cores.
        throttle: NVML's throttle reasons, combined by OR.
        other_load: share of the usable cores that others used, 0 to 1.
        other_processes: number of foreign compute processes on the device.
        seconds: length of the slice.
        limit: `other_load` above which the slice counts as loaded.
        highest_mhz: the highest clock of the device.
    """

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: int | None = None
    other_load: float | None = None
    other_processes: int | None = None
    seconds: float = 0.0
    limit: float = LOADED["cpu"]
    highest_mhz: float | None = None

    @property
    def capped(self) -> bool:
        """Whether power or heat throttled the device below CAPPED_CLOCK of its highest clock."""
        if not (self.throttle or 0) & CAPPED:
            return False
        if self.clock_mhz is None or self.highest_mhz is None:
            return True
        return self.clock_mhz < CAPPED_CLOCK * self.highest_mhz

    @property
    def loaded(self) -> bool:
        """Whether other processes used the host's cores beyond the limit, or the device."""
        return (self.other_load or 0.0) > self.limit or (self.other_processes or 0) > 0


def combine(states: Iterable[State]) -> State:
    """One state for several slices: medians, all throttle reasons, load weighted by length."""
    states = list(states)
    if not states:
        return State()

    def known(name: str) -> list:
        return [value for state in states if (value := getattr(state, name)) is not None]

    return State(
        *(_median(known(name)) for name in ("clock_mhz", "power_w", "temperature_c")),
        throttle=_any_bits(known("throttle")),
        other_load=_mean_load(states),
        other_processes=max(known("other_processes"), default=None),
        seconds=sum(state.seconds for state in states),
        limit=states[0].limit,
        highest_mhz=states[0].highest_mhz,
    )


@dataclass(frozen=True)
class Before:
    """The machine before a benchmark: one-minute load average and other work."""

    cores: int
    load_average: float | None
    state: State

    @property
    def words(self) -> str | None:
        """One line on what others do on this machine; None if it is idle or unknown."""
        parts = []
        load = self.state.other_load
        if load is not None and load > LOADED["cpu"]:
            parts.append(f"other processes use {load * self.cores:.1f} of {self.cores} cores")
        elif load is None and self.load_average and self.load_average > LOADED["cpu"] * self.cores:
            parts.append(f"the load average is {self.load_average:.1f} on {self.cores} cores")
        if count := self.state.other_processes:
            parts.append(f"{count} other process{'es' * (count > 1)} on the device")
        return ", ".join(parts) or None


class Watch:
    """Samples the state of the machine during slices; made by `watch`."""

    def __init__(self, device: str, sensor: Processor, host: HostLoad, workers: Callable):
        self._limit = LOADED[device]
        self._sensor, self._host, self._workers = sensor, host, workers
        self._readings: deque[Reading] = deque()
        self._samples: list[Sample] = []
        self._began = time.perf_counter()
        self._others: tuple[float, int | None] = (float("-inf"), None)

    def before(self, seconds: float = _WINDOW_S) -> Before:
        """What the machine does before the benchmark, averaged over `seconds`, which it waits."""
        self.begin()
        time.sleep(seconds)
        average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return Before(self._host.cores, average, self.end())

    def begin(self) -> None:
        """Call this right before a slice."""
        if self._readings and time.perf_counter() - self._readings[-1].at > _FORGOTTEN_S:
            self._readings.clear()
        self._read()
        self._samples.clear()
        self._began = time.perf_counter()

    def sample(self) -> None:
        """Sample the device; takes well under a millisecond."""
        self._samples.append(self._sensor.sample())

    def end(self) -> State:
        """The state during the slice that has just ended."""
        ended = time.perf_counter()
        self.sample()
        self._read()
        samples = self._samples[:-1] or self._samples  # the last sample sees an idle device
        return State(
            *(_median(_known(samples, name)) for name in ("clock_mhz", "power_w", "temperature_c")),
            throttle=_any_bits(_known(samples, "throttle")),
            other_load=self._load(),
            other_processes=self._other_processes(),
            seconds=ended - self._began,
            limit=self._limit,
            highest_mhz=self._sensor.highest_mhz,
        )

    def _read(self) -> None:
        now = time.perf_counter()
        if self._readings and now - self._readings[-1].at < _APART_S:
            return
        if (reading := self._host.read()) is not None:
            self._readings.append(reading)
        # Keep one reading that is older than both the window and the slice.
        start = min(self._began, now - _WINDOW_S)
        while len(self._readings) > 1 and self._readings[1].at <= start:
            self._readings.popleft()

    def _load(self) -> float | None:
        if len(self._readings) < 2:
            return None
        first, last = self._readings[0], self._readings[-1]
        if last.at - first.at < _WINDOW_S / 2:
            return None  # too short: one tick would look like a process
        return self._host.others(first, last) / self._host.cores

    def _other_processes(self) -> int | None:
        now = time.perf_counter()
        if now - self._others[0] > _WINDOW_S:
            ours = self._host.ours()
            self._others = now, self._sensor.other_processes(ours, len(self._workers()))
        return self._others[1]


def drift(reference: Sequence[float], first: Sequence[float]) -> float:
    """Time over first time of the reference cell: matmul or copy, whichever is farther from 1."""
    ratios = (now / before for now, before in zip(reference, first, strict=True))
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))


def watch(device: str, uuid: str | None, workers: Callable[[], Sequence[int]]) -> Watch:
    """A Watch for a device (cuda, mps or cpu).

    Args:
        uuid: of the CUDA device, as `GPU-...`.
        workers: returns the process ids of our workers.
    """
    return Watch(device, sensor(device, uuid), HostLoad(workers), workers)


def _known(samples: Sequence[Sample], name: str) -> list:
    return [value for sample in samples if (value := getattr(sample, name)) is not None]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _any_bits(values: Sequence[int]) -> int | None:
    bits = None
    for value in values:
        bits = (bits or 0) | value
    return bits


def _mean_load(states: Sequence[State]) -> float | None:
    known = [(state.other_load, state.seconds) for state in states if state.other_load is not None]
    weight = sum(seconds for _, seconds in known)
    if not known:
        return None
    if not weight:
        return statistics.fmean(load for load, _ in known)
    return sum(load * seconds for load, seconds in known) / weight
