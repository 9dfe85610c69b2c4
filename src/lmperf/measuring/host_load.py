"""CPU time that other processes use on this machine, from Linux's /proc.

The kernel counts the idle time of each core in hundredths of a second and the CPU time of each
process in nanoseconds. Other load is busy time that is not ours; that includes time taken by the
hypervisor (steal). Ours are this process, its workers and all their descendants.

psutil would not do here: it numbers the cores of /proc/stat by position, which is wrong when some
are offline, and rounds the CPU time of a process to hundredths of a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmperf.measuring.descendants import PROC, descendants


@dataclass(frozen=True)
class Reading:
    """Counters at one moment, in seconds.

    Attributes:
        at: the time of the reading.
        idle: summed idle time of the usable cores.
        used: id of each of our processes -> (its CPU time, that of its ended children).
    """

    at: float
    idle: float
    used: Mapping[int, tuple[float, float]]


class HostLoad:
    """Reads the counters of the host, and computes other load from two readings.

    Args:
        workers: returns the ids of our processes that do not descend from this one.
        proc: where the process file system is mounted.
    """

    def __init__(self, workers: Callable[[], Sequence[int]] = tuple, proc: Path = PROC):
        self._workers, self._proc = workers, proc
        self._cpus = _usable_cpus()
        self.cores = len(self._cpus)
        self._tick = 1 / os.sysconf("SC_CLK_TCK")

    def read(self) -> Reading | None:
        """The current counters; None if the system has none."""
        try:
            idle = self._idle()
        except OSError:
            return None
        if idle is None:
            return None
        at = time.perf_counter()
        return Reading(at, idle, {pid: self._used(pid) for pid in self.ours()})

    def others(self, first: Reading, last: Reading) -> float:
        """Mean number of cores that others used between two readings, 0 to `cores`."""
        seconds = last.at - first.at
        busy = seconds * self.cores - (last.idle - first.idle)
        cores = (busy - _used_between(first.used, last.used)) / seconds
        return min(max(cores, 0.0), float(self.cores))

    def ours(self) -> set[int]:
        """The ids of our processes: this one, the workers and all descendants."""
        return descendants(os.getpid(), *self._workers(), proc=self._proc)

    def _idle(self) -> float | None:
        ticks, seen = 0, False
        for line in (self._proc / "stat").read_text().splitlines():
            name, *fields = line.split()
            if not name.startswith("cpu"):
                break  # skips the long lines of interrupt counters
            if name[3:].isdigit() and int(name[3:]) in self._cpus:
                ticks += int(fields[3]) + int(fields[4])
                seen |= any(field != "0" for field in fields)
        return ticks * self._tick if seen else None

    def _used(self, pid: int) -> tuple[float, float]:
        fields = _text(self._proc / str(pid) / "stat").rpartition(")")[2].split()
        if len(fields) < 15:
            return 0.0, 0.0
        user, system, of_children, system_of_children = map(int, fields[11:15])
        itself = (user + system) * self._tick
        if self._proc == PROC:
            itself = _process_clock(pid, itself)
        return itself, (of_children + system_of_children) * self._tick


def _process_clock(pid: int, coarse: float) -> float:
    """CPU seconds of a process with nanosecond resolution; `coarse` if its clock cannot be read."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the value of clock_getcpuclockid(3)
    except OSError:
        return coarse


def _used_between(first: Mapping[int, tuple], last: Mapping[int, tuple]) -> float:
    """CPU seconds that our processes used between two readings.

    The time of an ended process moves to its parent, if the parent waits for it. If not, the sum
    decreases, and only the processes that still run are counted.
    """
    sums = sum(map(sum, last.values())) - sum(map(sum, first.values()))
    alive = sum(last[pid][0] - first[pid][0] for pid in last.keys() & first.keys())
    return max(sums, alive, 0.0)


def _usable_cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
