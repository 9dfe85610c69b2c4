"""What processes that are not ours use of this machine's cores, by Linux's /proc.

The kernel says how long each core was idle, to a hundredth of a second, and what each process
used, to the nanosecond. What is busy and not ours is other load: also what a hypervisor took away
(steal). Ours are this process, the workers that it names, and the descendants of them all.
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
    """Counters of one moment, in seconds: idle time of the usable cores, CPU time of our processes.

    `used` has (time of a process itself, time of its ended children) by process id.
    """

    at: float
    idle: float
    used: Mapping[int, tuple[float, float]]


class HostLoad:
    """Counters of the host, and the load by others between two readings of them.

    Args:
        workers: gives the ids of processes that are ours beside this one and its descendants.
        proc: where the process file system is mounted.
    """

    def __init__(self, workers: Callable[[], Sequence[int]] = tuple, proc: Path = PROC):
        self._workers, self._proc = workers, proc
        self._cpus = _usable_cpus()
        self.cores = len(self._cpus)
        self._tick = 1 / os.sysconf("SC_CLK_TCK")

    def read(self) -> Reading | None:
        """The counters as they are now; None where the system has none."""
        try:
            idle = self._idle()
        except OSError:
            return None
        if idle is None:
            return None
        at = time.perf_counter()
        return Reading(at, idle, {pid: self._used(pid) for pid in self.ours()})

    def others(self, first: Reading, last: Reading) -> float:
        """Cores that others used on average between two readings, 0 to `cores`."""
        seconds = last.at - first.at
        busy = seconds * self.cores - (last.idle - first.idle)
        cores = (busy - _used_between(first.used, last.used)) / seconds
        return min(max(cores, 0.0), float(self.cores))

    def ours(self) -> set[int]:
        """Ids of our processes: this one, the workers, and what any of them started."""
        return descendants(os.getpid(), *self._workers(), proc=self._proc)

    def _idle(self) -> float | None:
        ticks, seen = 0, False
        for line in (self._proc / "stat").read_text().splitlines():
            name, *fields = line.split()
            if not name.startswith("cpu"):
                break  # the counters of interrupts that follow are long
            if name[3:].isdigit() and int(name[3:]) in self._cpus:
                ticks += int(fields[3]) + int(fields[4])
                seen |= any(field != "0" for field in fields)
        return ticks * self._tick if seen else None

    def _used(self, pid: int) -> tuple[float, float]:
        fields = _text(self._proc / str(pid) / "stat").rpartition(")")[2].split()
        if len(fields) < 15:
            return 0.0, 0.0
        user, system, of_children, system_of_children = map(int, fields[11:15])
        own = (user + system) * self._tick
        if self._proc == PROC:
            own = _process_clock(pid, own)
        return own, (of_children + system_of_children) * self._tick


def _process_clock(pid: int, coarse: float) -> float:
    """CPU time of a process with all its threads, in nanoseconds' resolution where Linux has it."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) returns
    except OSError:
        return coarse


def _used_between(first: Mapping[int, tuple], last: Mapping[int, tuple]) -> float:
    """CPU seconds of our processes between two readings.

    The time of a process that ended is with its parent, if that waited for it; if not, the sums
    would run backwards, and only those that live on are counted.
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
    except OSError:  # a process that ended meanwhile
        return ""
