"""Ends processes together with the process that started them, however that one ends (Linux only).

Workers are forked from a server, which would outlive its owner while a worker holds its pipe open.
So the server is killed when its owner ends, and the workers when the server ends. The server
imports this module first; an environment variable tells it that it is the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator

_OWNER = "LMPERF_FORKSERVER_OF"
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; no effect if that is not its parent.

    The kernel watches the thread that started this process, which may end before its process does.
    """
    if sys.platform != "linux" or os.getppid() != parent:
        return
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the kernel watched it
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Make orphans among the descendants of this process its own children (subreaper)."""
    if sys.platform == "linux":
        _prctl(_SET_CHILD_SUBREAPER, 1)


@contextlib.contextmanager
def owning_a_server() -> Iterator[None]:
    """A fork server started in this block ends with this process, and ignores Ctrl-C."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started later, it would unblock SIGINT
    os.environ[_OWNER] = str(os.getpid())
    # The server inherits this mask, so no interrupt reaches it before it ignores them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        del os.environ[_OWNER]


def _serve(owner: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if os.getppid() != owner:
        os._exit(1)
    die_with(owner)
    # Orphans of lost workers become children of the server, where they can be found.
    adopt_orphans()
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if _OWNER in os.environ:
    _serve(int(os.environ.pop(_OWNER)))
