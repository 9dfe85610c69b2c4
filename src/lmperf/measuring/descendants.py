"""What a process has started, and what that has started: found by Linux's /proc, also where it left
its process group or its session. Nothing is found on other systems."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def children(pid: int, proc: Path = PROC) -> set[int]:
    """Ids of the processes that any thread of a process started, or that it adopted."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # it ended meanwhile
        for task in (proc / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                found |= set(map(int, (task / "children").read_text().split()))
    return found


def descendants(*pids: int, proc: Path = PROC) -> set[int]:
    """Ids of the processes, and of all that descends from them."""
    waiting, found = set(pids), set()
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting |= children(pid, proc) - found
    return found


def stop(*pids: int) -> set[int]:
    """Stop processes and all that descends from them, also what they start meanwhile; their ids."""
    stopped: set[int] = set()
    while new := descendants(*pids) - stopped:
        send(new, signal.SIGSTOP)
        stopped |= new
    return stopped


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to those of the processes that are left."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_children(pid: int, but: Iterable[int], limit_s: float = 2.0) -> None:
    """Kill the children of a process, but for some, and all that descends from them.

    Returns when the process has seen them end, or after `limit_s` seconds.
    """
    kept, until = set(but), time.monotonic() + limit_s
    while (left := children(pid) - kept) and time.monotonic() < until:
        send(stop(*left), signal.SIGKILL)
        time.sleep(0.002)
