"""Samples the machine during a slice (a short run of timed calls): clock, power, throttling, load.

The supervisor takes the samples in its own process while a worker process runs the slice:

    watch = state.watch("cuda", ["GPU-..."], workers)
    watch.begin()       # right before a slice is requested
    watch.sample()      # while it runs, any number of times
    state = watch.end()

The CPU load of other processes is averaged over at least the last `_WINDOW_S` seconds before the
slice ends, even if the slice is shorter: Linux counts idle time in steps of 10 ms, and a slice may
last only 30 ms.
"""

from __future__ import annotations

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
# A device reports its power cap even if the clock is lowered by a single step (less than 1 %). Only
# a clock below this share of the highest one counts as throttled.
CAPPED_CLOCK = 0.97
# Load of other processes above which a slice is marked `loaded`, as a share of the usable cores. On
# a CPU the timed calls need the cores: with two idle cores the load was at most 0.03 in 600 slices
# of 30 ms, and 0.5 next to one busy process. With a GPU the host only needs cores to queue work.
LOADED = {"cpu": 0.05, "cuda": 0.5, "mps": 0.5}
# By how much the reference cell (`measuring.reference`) may be slower than usual; a larger
# difference marks rows with `drift`. Of 465 readings on two cores of an otherwise idle virtual
# machine, 0.4 % were slower than usual by more than 0.25, and none was if taken three times. Its
# copies have two usual speeds, 1.9 apart, each for seconds to minutes, while the matmul stays
# within 6 %: so a CPU is judged by its matmul only. A GPU is not shared.
DRIFT = {"cpu": 0.25, "cuda": 0.10, "mps": 0.25}
# By how much the host's references may be slower than their best; a larger difference marks rows
# that depend on the host with `host`. On a CPU, where the host is the device, the matmul judges: in
# new processes on two cores at rest the Python loop was slower by up to 0.64, while the rows timed
# then were up to 0.13 faster than before. So only a host at half of its speed counts there.
SLOW_HOST = {"cpu": 1.0, "cuda": 0.10, "mps": 0.25}
# Share of a call's time above which the host's time to queue it decides: the call is host-bound.
HOST_BOUND = 0.9
# Seconds over which the load is averaged, and least seconds between two readings.
_WINDOW_S = 0.3
_APART_S = 0.05
# Samples of the device in one slice that may be at any distance, and least seconds between further
# ones: the supervisor and the driver take time from the timed code for each.
_DENSE_SAMPLES, _SAMPLE_APART_S = 50, 0.05
# A reading older than this many seconds says nothing about the load during the next slice.
_FORGOTTEN_S = 2.0


@dataclass(frozen=True)
class State:
    """The clock, power, throttling and load of the machine during a slice; None: unknown.

    Attributes:
        clock_mhz: the SM clock of a GPU, or the mean clock of the CPU's cores.
        throttle: NVML's throttle reasons, combined by OR.
        other_load: share of the usable cores that other programs used, 0 to 1.
        other_processes: number of compute processes on the GPU that lmperf did not start.
        seconds: duration of the slice.
        limit: `other_load` above which the slice counts as loaded.
        highest_mhz: the highest SM clock of the GPU.
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
        """Whether other programs used more of the host's cores than `limit`, or used the GPU."""
        return (self.other_load or 0.0) > self.limit or (self.other_processes or 0) > 0


def combine(states: Iterable[State]) -> State:
    """Combine the states of several slices into one.

    Clock, power and temperature are medians, throttle reasons are combined by OR, the load is the
    mean weighted by the duration of each slice.
    """
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
    """The load of the machine before a benchmark: one-minute load average and sampled state."""

    cores: int
    load_average: float | None
    state: State

    @property
    def words(self) -> str | None:
        """One line about other programs that use the CPU or the GPU; None if there are none."""
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
    """Samples the state of the machine during slices (short runs of timed calls)."""

    def __init__(self, device: str, sensor: Processor, host: HostLoad, workers: Callable):
        self._limit = LOADED[device]
        self._sensor, self._host, self._workers = sensor, host, workers
        self._readings: deque[Reading] = deque()
        self._samples: list[Sample] = []
        self._sampled = float("-inf")
        self._began = time.perf_counter()
        self._others: tuple[float, int | None] = (float("-inf"), None)

    def before(self, seconds: float = _WINDOW_S) -> Before:
        """Wait for `seconds` before a benchmark, and return the machine's load in that time."""
        self.begin()
        time.sleep(seconds)
        average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return Before(self._host.cores, average, self.end())

    def begin(self) -> None:
        """Start sampling; to be called right before a slice is requested."""
        if self._readings and time.perf_counter() - self._readings[-1].at > _FORGOTTEN_S:
            self._readings.clear()
        self._read()
        self._samples.clear()
        self._began = time.perf_counter()

    def wait(self) -> None:
        """Wait until the load is known for a slice that begins now, however short it is."""
        if self._readings:
            time.sleep(max(0.0, self._readings[0].at + _WINDOW_S / 2 - time.perf_counter()))

    def sample(self) -> None:
        """Sample the device, in well under a millisecond; seldom when there are many samples."""
        now = time.perf_counter()
        if len(self._samples) < _DENSE_SAMPLES or now - self._sampled >= _SAMPLE_APART_S:
            self._sampled = now
            self._samples.append(self._sensor.sample())

    def free_bytes(self) -> float | None:
        """Return the free memory of the device; None if unknown."""
        return self._sensor.free_bytes()

    def end(self) -> State:
        """Stop sampling, and return the state of the machine during the slice."""
        ended = time.perf_counter()
        self._samples.append(self._sensor.sample())
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
        # Keep one reading from before both the averaging window and the slice.
        start = min(self._began, now - _WINDOW_S)
        while len(self._readings) > 1 and self._readings[1].at <= start:
            self._readings.popleft()

    def _load(self) -> float | None:
        if len(self._readings) < 2:
            return None
        first, last = self._readings[0], self._readings[-1]
        if last.at - first.at < _WINDOW_S / 2:
            return None  # too short: one tick (10 ms) would look like a busy process
        return self._host.others(first, last) / self._host.cores

    def _other_processes(self) -> int | None:
        now = time.perf_counter()
        if now - self._others[0] > _WINDOW_S:
            ours = self._host.ours()
            self._others = now, self._sensor.other_processes(ours, len(self._workers()))
        return self._others[1]


def watch(device: str, uuids: Sequence[str], workers: Callable[[], Sequence[int]]) -> Watch:
    """Return a `Watch` that samples a device (cuda, mps or cpu) and the host.

    Args:
        uuids: UUIDs of the CUDA devices in use, as `GPU-...`; empty for other devices.
        workers: returns the process ids of the workers.
    """
    return Watch(device, sensor(device, uuids), HostLoad(workers), workers)


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
