"""Processes of this machine: children and orphans, how they end, and with whom.

Imports no torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lmperf.errors import Interrupted

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl(2)
# How long a process may clean up once it is interrupted.
_CLEAN_UP_S = 3.0


def can_be_interrupted() -> None:
    """Have SIGINT raise Interrupted here; what a shell starts with & ignores it."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGINT, interrupt)


def end(child: int) -> None:
    """Interrupt a child that has not ended, so that it removes its locks; kill it if need be."""
    until = time.monotonic() + _CLEAN_UP_S
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if os.waitpid(child, os.WNOHANG)[0]:  # raises if it is waited for: its id may be another's
            return
        os.kill(child, signal.SIGINT)
        while time.monotonic() < until:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def locks_of_builds() -> str:
    """Return words on the locks of torch's extension builder, each of which makes every import of
    its extension wait; an empty text if there are none.

    A build leaves its lock behind if it is killed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_extensions")
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache)
    locks = sorted(map(str, [*folder.glob("*/lock"), *folder.glob("*/*/lock")]))
    words = "if nothing compiles now, delete the lock of torch's extension builder:"
    return f"; {words} {', '.join(locks)}" if locks else ""


def end_children(but: Sequence[int] = ()) -> None:
    """Kill the children of this process except some, and wait for them.

    The orphans that they leave become children here if this process adopts orphans.
    """
    while left := [pid for pid in children(os.getpid()) if pid not in but]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def adopt_orphans(adopt: bool = True) -> None:
    """Adopt descendants of this process whose own parent ends (subreaper), or no longer."""
    _prctl(_SUBREAPER, int(adopt))


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends.

    If `parent` is not its parent, it has ended already: so does this process.
    """
    _prctl(_DEATH_SIGNAL, number)
    if os.getppid() != parent:  # it ended before the kernel watched it
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    """Call prctl(2), which only Linux has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the ids of the children of a process, started by any thread or adopted."""
    pids = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                pids += map(int, (task / "children").read_text().split())
    return pids


def family(pid: int) -> list[int]:
    """Return the ids of a process and all of its descendants; without /proc, only its own."""
    return [pid, *(relative for child in children(pid) for relative in family(child))]
