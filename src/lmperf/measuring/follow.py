"""Processes that end with the one that started them, however that one ends. On Linux; elsewhere
nothing here does anything.

Workers are forked from a server, which would outlive its owner for as long as a worker holds its
pipe. So the server follows its owner, and the workers follow the server. The server preloads this
module first, and is told by an environment variable that it is the server.
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
    """Have this process killed when `parent` ends, if that is what started it.

    The kernel watches the thread that started it: one that ends before its process counts as well.
    """
    if sys.platform != "linux" or os.getppid() != parent:
        return
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it was watched
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Have what a child of this process leaves behind become a child of this process."""
    if sys.platform == "linux":
        _prctl(_SET_CHILD_SUBREAPER, 1)


@contextlib.contextmanager
def owning_a_server() -> Iterator[None]:
    """A fork server that is started in this block follows this process; Ctrl-C does not end it."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it would unblock what is blocked here
    os.environ[_OWNER] = str(os.getpid())
    # It inherits the mask, and so is not interrupted before it ignores interrupts.
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
    # What a lost worker leaves behind is found here, and no child of anybody else is.
    adopt_orphans()
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if _OWNER in os.environ:
    _serve(int(os.environ.pop(_OWNER)))
