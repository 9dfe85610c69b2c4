"""One lock for each device, so that one measurement runs on it at a time, by any user.

A lock is a `flock` of a file that whoever measures holds open: this process, and the keeper of its
worker, so that the device is free only when everything has ended. The lock of a GPU is that of its
UUID; a CPU's is that of the machine. The path does not depend on TMPDIR, which users set.

Not by the package filelock: its release unlocks the keeper's copy as well, and it cannot lock a
file that belongs to another user.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lmperf.errors import UserError, one_line
from lmperf.measuring.gpus import visible_gpus

_PATH, _POLL_S = "/tmp/lmperf.lock", 0.2


@contextmanager
def locked(
    device: str, number: int, say: Callable[[str], None], among: Sequence[str] | None = None
) -> Iterator[tuple[list[int], list[str]]]:
    """Hold the locks of so many devices; yields their descriptors, and the UUIDs of GPUs.

    Waits while others hold them; `say` is then called once. GPUs are taken in the order of
    CUDA_VISIBLE_DEVICES, and all at once or none, so that two that wait cannot block each other.

    number: of GPUs; a CPU is one device.
    among: UUIDs of the GPUs to take them from, if not from those of CUDA_VISIBLE_DEVICES.

    Raises:
        UserError: there are too few GPUs, or a file cannot be opened.
    """
    gpus = (visible_gpus() if among is None else among) if device == "cuda" else []
    if gpus and len(gpus) < number:
        raise UserError(f"needs {number} GPUs; this process may use {len(gpus)}")
    names, wanted, told = [f".{gpu}" for gpu in gpus] or [""], number if gpus else 1, False
    while len(held := _taken(names, wanted)) < wanted:
        if not told:
            say(f"waiting for another measurement on this machine{_holder(names)}")
        told = True
        time.sleep(_POLL_S)
    try:
        yield list(held.values()), [name[1:] for name in held if name]
    finally:
        for descriptor in held.values():
            os.close(descriptor)  # unlocking would also unlock the keeper's copy


def _taken(names: Sequence[str], wanted: int) -> dict[str, int]:
    """Lock the first free ones of the files; return name -> descriptor, or {} if too few are."""
    held: dict[str, int] = {}
    for name in names:
        if len(held) < wanted and (descriptor := _at_once(name)) is not None:
            held[name] = descriptor
    if len(held) < wanted:
        for descriptor in held.values():
            os.close(descriptor)
        return {}
    return held


def _path(name: str) -> str:
    return (os.environ.get("LMPERF_LOCK") or _PATH) + name


def _at_once(name: str) -> int | None:
    """Lock a file; return its descriptor, None if somebody else holds the lock."""
    try:
        descriptor = _opened(_path(name))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
    except OSError as error:
        raise UserError(
            f"the lock file of this machine, {_path(name)}: {error.strerror}; set LMPERF_LOCK to a"
            " file that all users of the machine can open"
        ) from None
    return descriptor


def _opened(path: str) -> int:
    """Open a lock file for reading, which works if another user owns it; create it if missing."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # of a FIFO, opening it would wait
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL)
        os.fchmod(descriptor, 0o644)  # whatever the umask
        return descriptor
    return os.open(path, flags)


def _holder(names: Sequence[str]) -> str:
    """The process that holds the first lock, in words; empty if /proc does not tell."""
    with suppress(OSError):
        inode = os.stat(_path(names[0])).st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "->" not in fields and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                command = Path(f"/proc/{fields[4]}/cmdline").read_bytes().replace(b"\0", b" ")
                words = one_line(command.decode(errors="backslashreplace"), limit=120)
                return f": process {fields[4]}, {words}"
    return ""
