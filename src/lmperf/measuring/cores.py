"""Keeps a process on the CPU cores that are fast at the moment (Linux only).

The cores of a virtual machine are often hardware threads that share a physical core with a thread
of another virtual machine. On a rented H200 host without any other process, a loop in Python took
0.72 or 1.37 ms, for seconds at a time: the time of a host-bound step moved with it. So a worker
looks for the cores on which a short loop is fast, and runs on these. On a machine without such
neighbours all cores are alike, and all of them are kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from time import monotonic, perf_counter

# A core is slow if the loop takes longer on it than on the fastest core by more than this factor.
# On the H200 host above, the factor was 1.9.
_SLOW = 1.2
# At least this share of the cores is kept: the processes of a compiler inherit the choice.
_LEAST_SHARE = 0.25
# Additions in one loop (about 0.1 ms), and loops on each core; the fastest counts.
_ADDITIONS, _LOOPS = 4_000, 2
# Seconds for which a choice holds.
_HOLDS_S = 0.25


class FastCores:
    """Chooses the fast ones of the cores that this process may use when the object is made."""

    def __init__(self) -> None:
        self._usable = usable_cores()
        self._chosen_at = float("-inf")

    def choose(self, ranks: Collection[int] = ()) -> None:
        """Move all threads of this process to the cores that are fast now; takes a few ms.

        ranks: ids of processes that are moved to the same cores.
        """
        if len(self._usable) < 2 or monotonic() - self._chosen_at < _HOLDS_S:
            return
        times = {core: _loop_ms(core) for core in self._usable}
        cores = fast_cores(times)
        for process in ("self", *ranks):
            _move_to(cores, process)
        self._chosen_at = monotonic()


def usable_cores() -> list[int]:
    """Return the numbers of the CPU cores that this process may use; empty off Linux."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def fast_cores(times: dict[int, float]) -> list[int]:
    """Return the fast cores, fastest first.

    Args:
        times: core -> ms of a loop on it.
    """
    order = sorted(times, key=times.__getitem__)
    least = max(1, int(_LEAST_SHARE * len(order)))
    limit = _SLOW * times[order[0]]
    return [core for place, core in enumerate(order) if place < least or times[core] <= limit]


def _loop_ms(core: int) -> float:
    try:
        os.sched_setaffinity(0, {core})
    except OSError:  # the core was taken from this process
        return float("inf")
    best = float("inf")
    for _ in range(_LOOPS):
        total, began = 0, perf_counter()
        for number in range(_ADDITIONS):
            total += number & 7
        best = min(best, perf_counter() - began)
    return best * 1e3


def _move_to(cores: list[int], process: int | str = "self") -> None:
    with contextlib.suppress(FileNotFoundError):  # the process has ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError):  # the thread has ended
                os.sched_setaffinity(int(thread), cores)
