"""Measures how much CPU time other programs use on this machine, from Linux's /proc.

Linux counts the idle time of each core in steps of 10 ms, and the CPU time of each process in
nanoseconds. The load of others is the busy time of the cores minus the CPU time of lmperf's own
processes: this process, its workers and all their descendants. It includes time taken by the
hypervisor (steal).

psutil is not used: it numbers the cores of /proc/stat by position, which is wrong if some cores are
offline, and rounds the CPU time of a process to 10 ms.
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
    """CPU time counters at one moment, in seconds.

    Attributes:
        at: the time of the reading.
        idle: idle time of the usable cores, summed.
        used: id of each process of lmperf -> (CPU time of the process, CPU time of its ended
            children).
    """

    at: float
    idle: float
    used: Mapping[int, tuple[float, float]]


class HostLoad:
    """Reads the CPU time counters, and computes the load of other programs from two readings.

    Args:
        workers: returns the ids of the worker processes, which may descend from another process.
        proc: where the process file system is mounted.
    """

    def __init__(self, workers: Callable[[], Sequence[int]] = tuple, proc: Path = PROC):
        self._workers, self._proc = workers, proc
        self._cpus = _usable_cpus()
        self.cores = len(self._cpus)
        self._tick = 1 / os.sysconf("SC_CLK_TCK")

    def read(self) -> Reading | None:
        """Read the current counters; None if the system does not provide them."""
        try:
            idle = self._idle()
        except OSError:
            return None
        if idle is None:
            return None
        at = time.perf_counter()
        return Reading(at, idle, {pid: self._used(pid) for pid in self.ours()})

    def others(self, first: Reading, last: Reading) -> float:
        """Return the mean number of cores that other programs used between two readings."""
        seconds = last.at - first.at
        busy = seconds * self.cores - (last.idle - first.idle)
        cores = (busy - _used_between(first.used, last.used)) / seconds
        return min(max(cores, 0.0), float(self.cores))

    def ours(self) -> set[int]:
        """Return the ids of lmperf's processes: this one, the workers and all descendants."""
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
    """Return the CPU seconds of a process from its CPU clock; `coarse` if it cannot be read."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the value of clock_getcpuclockid(3)
    except OSError:
        return coarse


def _used_between(first: Mapping[int, tuple], last: Mapping[int, tuple]) -> float:
    """Return the CPU seconds that lmperf's processes used between two readings.

    If a parent process waits for an ended child, it inherits the child's CPU time. If it does not
    wait, the sum over all processes may decrease; then only processes in both readings count.
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
