"""Ends processes together with the process that started them, even if that is killed (Linux only).

Workers are forked from a server. While a worker holds the server's pipe open, the server would
outlive the process that started it (its owner). So the kernel kills the server when its owner ends,
and the workers when the server ends. The server imports this module first; the environment variable
LMPERF_FORKSERVER_OF tells the module that it runs in the server.
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
    """Have the kernel kill this process when `parent` ends; no effect if it has another parent.

    The kernel watches the thread that started this process. The thread may end before its process.
    """
    if sys.platform != "linux" or os.getppid() != parent:
        return
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the kernel watched it
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans(adopt: bool = True) -> None:
    """Adopt descendants of this process whose own parent ends (subreaper), or no longer."""
    if sys.platform == "linux":
        _prctl(_SET_CHILD_SUBREAPER, int(adopt))


@contextlib.contextmanager
def owning_a_server() -> Iterator[None]:
    """Make a fork server that starts in this block ignore Ctrl-C, and end with this process."""
    from multiprocessing import resource_tracker

    # The tracker inherits the filter. It removes the semaphores of a killed worker's compiler, and
    # would warn of each.
    sys.warnoptions.append("ignore:resource_tracker")
    try:
        resource_tracker.ensure_running()  # started later, it would unblock SIGINT
    finally:
        sys.warnoptions.remove("ignore:resource_tracker")
    os.environ[_OWNER] = str(os.getpid())
    # The server inherits this mask, so no SIGINT reaches it before it ignores SIGINT.
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
