"""Locks the machine, so that only one measurement runs at a time, by any user, on any device.

    with machine_lock(print) as lock:
        ...

A process may take the lock several times. A worker process that inherits the open lock file holds
the lock until the worker ends. All users of the machine share the file: its path does not depend on
TMPDIR, and it is opened for reading, which works even if another user owns the file.

The package filelock is not used: it unlocks on release, which would free the lock while a worker
still runs, and it needs write permission for the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from lmperf.errors import UserError
from lmperf.measuring.printable import one_line

_PATH = "/tmp/lmperf.lock"
_WAITING = "waiting for another measurement on this machine"


class MachineLock:
    """Takes and releases the machine's lock; the lock file is `$LMPERF_LOCK` or a fixed path.

    Raises:
        UserError: from `take`, if the file cannot be opened or locked.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._descriptor = -1

    @property
    def path(self) -> Path:
        return Path(os.environ.get("LMPERF_LOCK") or _PATH)

    def take(self, waiting: Callable[[str], None]) -> None:
        """Take the lock, and wait while another process holds it.

        waiting: called once before waiting, with a line that names the process.
        """
        if not self._taken:
            self._descriptor = _locked(self.path, waiting)
        self._taken += 1

    def release(self) -> None:
        """Undo one `take`; after as many releases the lock is free once no worker holds it."""
        self._taken -= 1
        if not self._taken:
            os.close(self._descriptor)  # unlocking would also unlock the workers' copies

    def fileno(self) -> int:
        """Return the descriptor of the open lock file, for workers to inherit; -1 before `take`."""
        return self._descriptor


MACHINE = MachineLock()


@contextlib.contextmanager
def machine_lock(waiting: Callable[[str], None]) -> Iterator[MachineLock]:
    """Hold the machine's lock in this block; `waiting` as for `MachineLock.take`."""
    MACHINE.take(waiting)
    try:
        yield MACHINE
    finally:
        MACHINE.release()


def _locked(path: Path, waiting: Callable[[str], None]) -> int:
    told = False
    while True:
        descriptor = _opened(path)
        try:
            if not _locks_at_once(descriptor, path):
                if not told:
                    waiting(_WAITING + _holder(descriptor))
                    told = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(path, descriptor):  # else it was deleted, and others lock a new file
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _locks_at_once(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _unusable(path, f"cannot be locked ({error.strerror})") from None
    return True


def _opened(path: Path) -> int:
    """Open the lock file, and create it if missing; never follow a link or block on a FIFO."""
    try:
        while True:
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                break
            with contextlib.suppress(FileExistsError):  # another process created it meanwhile
                descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(descriptor, 0o666)  # whatever the umask
                break
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise _unusable(path, "is a symbolic link" if link else error.strerror) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unusable(path, "is not a regular file")
    return descriptor


def _unusable(path: Path, why: str) -> UserError:
    return UserError(
        f"the lock file of this machine, {path}: {why}; set LMPERF_LOCK to a file that all users of"
        " the machine can open"
    )


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _holder(descriptor: int) -> str:
    """Return the process that holds the lock, in words; empty if /proc does not list it."""
    here = os.fstat(descriptor)
    file = f"{os.major(here.st_dev):02x}:{os.minor(here.st_dev):02x}:{here.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "->" not in fields and fields[1] == "FLOCK" and fields[5] == file:
                command = Path(f"/proc/{fields[4]}/cmdline").read_bytes().replace(b"\0", b" ")
                words = one_line(command.decode(errors="backslashreplace"), limit=120)
                return f": process {fields[4]}, {words}"
    return ""
