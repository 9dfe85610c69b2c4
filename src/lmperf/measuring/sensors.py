"""Reads the clock, power, temperature, throttle reasons and compute processes of a device."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

_CPUFREQ = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
# Number of cores whose clock is read: on a large machine reading all takes longer than a slice (a
# short run of timed calls).
_CORES_READ = 4


@dataclass(frozen=True)
class Sample:
    """Readings of a device at one moment; None for each value that the device does not report."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: int | None = None


class Processor:
    """Sensor that reports at most a clock: of a CPU, of MPS, or of a GPU that NVML cannot query.

    Attributes:
        highest_mhz: the highest clock of the device; None if unknown.
    """

    highest_mhz: float | None = None

    def __init__(self, read_clock: Callable[[], float | None] = lambda: None):
        self._read_clock = read_clock

    def sample(self) -> Sample:
        return Sample(clock_mhz=self._read_clock())

    def free_bytes(self) -> float | None:
        """Return the memory that is available on the host, which the device shares."""
        return available_host_bytes()

    def other_processes(self, ours: Collection[int], workers: int) -> int | None:
        return None


class Device(Processor):
    """Sensor of a CUDA device, read through NVML."""

    def __init__(self, nvml: Any, handle: Any):
        super().__init__()
        self._nvml, self._handle = nvml, handle
        self._alone: int | None = None
        self.highest_mhz = self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)

    def sample(self) -> Sample:
        nvml, handle = self._nvml, self._handle
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return Sample(
            self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            None if power is None else power / 1000,
            self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        )

    def free_bytes(self) -> float | None:
        """Return the free memory of the GPU; None if unknown."""
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle)
        return None if memory is None else float(memory.free)

    def other_processes(self, ours: Collection[int], workers: int) -> int | None:
        """Number of compute processes on the GPU that lmperf did not start; None if unknown.

        In a container NVML's list may be empty or hold the host's process ids. The list is trusted
        if it has a process of lmperf, or is longer than when it was last read without a worker.

        Args:
            ours: ids of the processes of lmperf.
            workers: number of worker processes.
        """
        listed = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        if listed is None:
            return None
        found = {process.pid for process in listed}
        if found & set(ours):
            return len(found - set(ours))
        if not workers:
            self._alone = len(found)
            return self._alone or None  # an empty list may hide all processes
        if self._alone is not None and len(found) > self._alone:
            return max(self._alone, len(found) - workers)
        return None

    def _ask(self, question: Callable, *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


class Devices(Processor):
    """Sensor of several CUDA devices that work together; each reading is that of the worst one."""

    def __init__(self, devices: Sequence[Device]):
        super().__init__()
        self._devices = devices
        self.highest_mhz = devices[0].highest_mhz

    def sample(self) -> Sample:
        """Return the lowest clock, the highest power and temperature, and all throttle reasons."""
        samples = [device.sample() for device in self._devices]

        def known(name: str) -> list:
            return [value for one in samples if (value := getattr(one, name)) is not None]

        throttle = known("throttle")
        return Sample(
            min(known("clock_mhz"), default=None),
            max(known("power_w"), default=None),
            max(known("temperature_c"), default=None),
            reduce(or_, throttle) if throttle else None,
        )

    def free_bytes(self) -> float | None:
        """Return the free memory of the GPU that has the least; None if unknown."""
        found = (device.free_bytes() for device in self._devices)
        return min((free for free in found if free is not None), default=None)

    def other_processes(self, ours: Collection[int], workers: int) -> int | None:
        """Return the number of compute processes of others, over all GPUs; None if unknown.

        On each GPU a worker may have two processes: itself and a rank.
        """
        found = [device.other_processes(ours, 2 * workers) for device in self._devices]
        known = [count for count in found if count is not None]
        return sum(known) if known else None


def sensor(device: str, uuids: Sequence[str]) -> Processor:
    """Return the sensor of a device (cuda, mps or cpu); it reports None if it cannot be queried.

    uuids: UUIDs of the CUDA devices that work together; empty for other devices, or if unknown.
    """
    if device == "cpu":
        return Processor(clock_reader())
    if device == "cuda" and uuids:
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            found = [Device(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids]
            return found[0] if len(found) == 1 else Devices(found)
    return Processor()


def available_host_bytes() -> int | None:
    """Return the bytes of memory available on this host; None without /proc/meminfo."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def clock_reader(cpufreq: Path = _CPUFREQ, cpuinfo: Path = _CPUINFO) -> Callable:
    """Return a function that reads the mean clock of the cores in MHz, or returns None if unknown.

    /proc/cpuinfo is read only if the CPU has the flag `aperfmperf`: in a virtual machine without
    it the clock there may be a constant.
    """
    files = sorted(cpufreq.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))[:_CORES_READ]
    if files:
        return lambda: _mean(int(file.read_text()) / 1000 for file in files)
    if cpuinfo.exists() and "aperfmperf" in cpuinfo.read_text().split():
        return lambda: _mean(_megahertz(cpuinfo))
    return lambda: None


def _mean(values) -> float | None:
    try:
        return statistics.fmean(values)
    except (OSError, ValueError):
        return None


def _megahertz(cpuinfo: Path) -> list[float]:
    lines = cpuinfo.read_text().splitlines()
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
