"""Locks the machine, so that only one measurement runs at a time, by any user, on any device.

    with machine_lock(print) as lock:           # the whole machine
    with machine_lock(print, gpus=1) as lock:   # one GPU, beside jobs that hold the others

There is a lock file for the machine and one for each GPU. A CPU is one device: its lock is that of
the machine. Who takes the machine locks its file, then every GPU. Who takes some GPUs holds the
machine's file only while choosing, in the order of CUDA_VISIBLE_DEVICES: only one process chooses
at a time, so two that need several GPUs each cannot wait for each other.

A process may take the lock several times. A worker process that inherits the open lock files holds
the lock until the worker ends. All users of the machine share the files: their path does not depend
on TMPDIR, and they are opened for reading, which works even if another user owns them.

The package filelock is not used: it unlocks on release, which would free the lock while a worker
still runs, and it needs write permission for the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lmperf.errors import UserError
from lmperf.measuring.gpus import VISIBLE, all_gpus, visible_gpus
from lmperf.measuring.printable import one_line

_PATH = "/tmp/lmperf.lock"
_WAITING = "waiting for another measurement on this machine"
# Seconds between two looks whether one of several GPUs is free.
_POLL_S = 0.2


class MachineLock:
    """Takes and releases the lock of the machine, or of some of its GPUs.

    The lock file is `$LMPERF_LOCK` or a fixed path; that of a GPU has its UUID appended.

    Attributes:
        gpus: UUIDs of the GPUs that were taken; empty if the whole machine was.

    Raises:
        UserError: from `take`, if a file cannot be opened or locked, or there are too few GPUs.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._descriptors: list[int] = []
        self.gpus: list[str] = []

    @property
    def path(self) -> Path:
        return Path(os.environ.get("LMPERF_LOCK") or _PATH)

    def path_of(self, gpu: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{gpu}")

    def take(self, waiting: Callable[[str], None], gpus: int | None = None) -> None:
        """Take the lock, and wait while another process holds it.

        Without effect on `gpus` if this process holds the lock already.

        Args:
            waiting: called once before waiting, with a line that names the process.
            gpus: number of GPUs to take; None, or on a machine without a GPU: the whole machine.
        """
        if not self._taken:
            with contextlib.ExitStack() as undo:  # closes what was opened if this fails
                undo.callback(self._close)
                self._open(waiting, gpus)
                undo.pop_all()
        self._taken += 1

    def release(self) -> None:
        """Undo one `take`; after as many releases the lock is free once no worker holds it."""
        self._taken -= 1
        if not self._taken:
            self._close()  # unlocking would also unlock the workers' copies

    def filenos(self) -> list[int]:
        """Return the descriptors of the open lock files that workers must inherit.

        That of the machine, which nobody gets past, or those of the GPUs that were taken.
        """
        return self._descriptors[: len(self.gpus) or 1]

    @contextlib.contextmanager
    def visible(self) -> Iterator[None]:
        """Show a process that is started in this block only the GPUs that were taken."""
        before = os.environ.get(VISIBLE)
        if self.gpus:
            os.environ[VISIBLE] = ",".join(self.gpus)
        try:
            yield
        finally:
            if self.gpus:
                os.environ.pop(VISIBLE)
                os.environ.update({} if before is None else {VISIBLE: before})

    def _open(self, waiting: Callable[[str], None], number: int | None) -> None:
        known = all_gpus()
        usable = visible_gpus(known)
        if number is not None and len(usable) < number and known:
            raise UserError(f"needs {number} GPUs; this process may use {len(usable)}")
        machine = _locked(self.path, waiting)
        self._descriptors = [machine]
        if number is None or not known:
            self._descriptors += [_locked(self.path_of(gpu), waiting) for gpu in known]
            return
        self._choose(usable, number, waiting)
        self._descriptors.remove(machine)
        os.close(machine)

    def _choose(self, usable: list[str], number: int, waiting: Callable[[str], None]) -> None:
        """Lock GPUs in order, those that are free first, and wait for as many as are missing."""
        told = False
        while True:
            for gpu in usable:
                if gpu not in self.gpus and (one := _locked_at_once(self.path_of(gpu))) is not None:
                    self._descriptors.append(one)
                    self.gpus.append(gpu)
                if len(self.gpus) == number:
                    self.gpus.sort(key=usable.index)
                    return
            if not told:
                waiting(f"waiting for {number - len(self.gpus)} of {len(usable)} GPUs")
                told = True
            time.sleep(_POLL_S)

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors, self.gpus = [], []


MACHINE = MachineLock()


@contextlib.contextmanager
def machine_lock(waiting: Callable[[str], None], gpus: int | None = None) -> Iterator[MachineLock]:
    """Hold the lock of the machine or of GPUs in this block; arguments as of `MachineLock.take`."""
    MACHINE.take(waiting, gpus)
    try:
        yield MACHINE
    finally:
        MACHINE.release()


def _locked_at_once(path: Path) -> int | None:
    """Return the descriptor of a lock file; None if another process holds the lock."""
    descriptor = _opened(path)
    if _locks_at_once(descriptor, path) and _is_at(path, descriptor):
        return descriptor
    os.close(descriptor)
    return None


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
