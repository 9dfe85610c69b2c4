"""Reads clock, power and throttling of GPUs, and how busy other programs keep the processors.

The GPUs are sampled by the supervisor, through NVML. The load of the processors is read before and
after a phase, in the process that times it: nothing of lmperf runs beside timed code on a CPU.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

import psutil

from lmperf.measuring import processors
from lmperf.measuring.processes import family

# A row is loaded if others used more than this share of the machine's processors meanwhile.
MOST_LOAD = 0.1
# Linux counts CPU time in ticks of 10 ms: over less time, a load would be noise.
_LEAST_S, _APART_S = 0.3, 0.05
# Kinds of CPU time of a processor that works, of which some systems have only the first.
_BUSY = ("user", "system", "nice", "irq", "softirq", "steal")
# NVML's reason for a low clock: nothing runs.
_IDLE = 0x1
# NVML's throttle reasons: power cap, slow-down, software and hardware thermal limit, power brake.
# Not among them: idle, and clocks set by a user.
_CAPPED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
# A device reports its power cap even if the clock is lowered by a single step (less than 1 %). Only
# a clock below this share of the highest one counts.
_CAPPED_CLOCK = 0.97


class Load:
    """The share of the usable processors that other programs take from now on.

    Args:
        pid: the process that measures; it and its descendants are not others.
    """

    def __init__(self, pid: int):
        self._pid = pid
        self._began = self._times()

    def share(self) -> float:
        """Return the mean share until now, after a sleep if it is too early to tell.

        1, the most that it can be, if the system does not tell.
        """
        if self._began is None:
            return 1.0
        time.sleep(max(0.0, self._began[0] + _LEAST_S - time.monotonic()))
        seconds, machine_s, ours_s = (
            b - a for a, b in zip(self._began, self._times(), strict=True)
        )
        usable = processors.usable()
        # Others may use what a quota leaves them without taking anything from this process.
        busy_share = max(0.0, machine_s - ours_s) / seconds - (processors.affinity() - usable)
        return min(1.0, max(0.0, busy_share) / usable)

    def _times(self) -> tuple[float, float, float] | None:
        """Return the time, the CPU seconds of the usable processors, and those of the family."""
        try:
            times = psutil.cpu_times(percpu=True)
        except OSError:  # a sandbox without /proc/stat
            return None
        if processors.affinity() < len(times):
            times = [processor for n, processor in enumerate(times) if n in os.sched_getaffinity(0)]
        busy = sum(getattr(processor, kind, 0.0) for processor in times for kind in _BUSY)
        return time.monotonic(), busy, sum(map(_used_s, family(self._pid)))


def _used_s(pid: int) -> float:
    try:
        return sum(psutil.Process(pid).cpu_times()[:4])  # with its ended children
    except psutil.Error:  # it has ended
        return 0.0


class Gpus:
    """Samples GPUs that measure together; the slowest clock and the highest power count.

    An idle one does not count beside others that work, as in a step of one rank.

    Args:
        uuids: of the GPUs; none of them if the driver cannot be asked.
    """

    def __init__(self, uuids: Sequence[str]):
        self._handles: list[Any] = []
        with contextlib.suppress(Exception):  # no driver, or another version of it
            import pynvml as nvml

            nvml.nvmlInit()
            self._nvml = nvml
            self._handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
            clocks = (nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM) for h in self._handles)
            self._highest_mhz = min(clocks, default=0)
        self._samples: dict[Any, list[tuple[float, float, bool]]] = {}
        self._sampled = 0.0

    def __bool__(self) -> bool:
        return bool(self._handles)

    def sample(self, name: Any) -> None:
        """Read the GPUs for a name, unless they were read within the last 50 ms."""
        if not self._handles or time.monotonic() - self._sampled < _APART_S:
            return
        self._sampled, nvml = time.monotonic(), self._nvml
        with contextlib.suppress(nvml.NVMLError):
            why = [nvml.nvmlDeviceGetCurrentClocksEventReasons(h) for h in self._handles]
            busy = [h for h, reasons in zip(self._handles, why, strict=True) if not reasons & _IDLE]
            read = busy or self._handles
            clock = min(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM) for h in read)
            power = max(nvml.nvmlDeviceGetPowerUsage(h) / 1e3 for h in read)
            is_slow = clock < _CAPPED_CLOCK * self._highest_mhz
            capped = is_slow and any(
                reasons & _CAPPED
                for h, reasons in zip(self._handles, why, strict=True)
                if h in read
            )
            self._samples.setdefault(name, []).append((clock, power, capped))

    def columns(self, name: Any) -> dict[str, Any]:
        """Return medians of clock and power under a name, and the mark `capped`; then forget them.

        capped: the power or heat limit lowered the clock in half of the samples or more.
        """
        samples = self._samples.pop(name, None)
        if not samples:
            return {}
        clocks, powers, capped = zip(*samples, strict=True)
        marks = {"marks": "capped"} if mean(capped) >= 0.5 else {}
        return {"clock_mhz": median(clocks), "power_w": median(powers), **marks}
