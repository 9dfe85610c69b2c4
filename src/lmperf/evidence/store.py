"""Read and write evidence files: each has a digest beside it and is replaced as a whole.

`<stem>.csv` holds rows, `machine.json` the facts of a machine. `<stem>.sha256` holds the digest in
the format of sha256sum, so that an edited or truncated file is detected. While a file is being
replaced, the digest file lists the digests of both the old and the new content: whenever the writer
is killed, the file matches one of the two.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import fcntl
import glob
import hashlib
import io
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

STATISTICS = ("median_ms", "mean_ms", "std_ms", "p20_ms", "p80_ms", "repetitions")
_AFTER_IDENTITY = (
    *("status", "reason", "requested_bytes", "free_bytes", *STATISTICS),
    *("rounds_ms", "again_ms", "together", "compile_s"),
    *("flops", "bytes", "tflops", "bandwidth_gbps", "max_error", "error_bound"),
)
_LAST = ("clock_mhz", "power_w", "throttle", "seed", "environment", "commit", "measured_at", "key")

Row = dict[str, str]
# Axis -> name of a value before it was renamed, as in old evidence -> today's name.
Former = Mapping[str, Mapping[str, str]]
# Folders of `report/<machine>`: EVIDENCE has the published rows, STORE every row measured there.
EVIDENCE, STORE = "evidence", "store"


class DamagedEvidence(Exception):
    """An evidence file is not as lmperf wrote it; the message names the file and the fault."""


def text_of(value: Any) -> str:
    """Return a value as a CSV cell: floats in full precision, None as an empty cell."""
    if value is None:
        return ""
    # repr(numpy.float64(0.5)) is "np.float64(0.5)", so its base class's repr is used.
    return float.__repr__(value) if isinstance(value, float) else str(value)


class Evidence:
    """The rows of one benchmark on one machine.

    Args:
        path: `report/<machine>/evidence/<stem>.csv`.
        identity: columns that together identify a row (axes, implementation, phase, index).
        case_columns: columns that identify a case and phase; a new measurement of a case and phase
            replaces all rows that agree in these columns.
        former: former names of axis values; `read` replaces them by today's names.
    """

    def __init__(
        self,
        path: Path,
        identity: Sequence[str],
        case_columns: Sequence[str],
        former: Former = MappingProxyType({}),
    ):
        self.path = path
        self.identity = tuple(identity)
        self.case_columns = tuple(case_columns)
        self.former = former

    @property
    def digest_path(self) -> Path:
        return self.path.with_suffix(".sha256")

    def read(self) -> list[Row]:
        """Return all rows of the file; an empty list if there is no file.

        An axis that was added after a row was measured is empty in that row. Former names of axis
        values are replaced by today's names.

        Raises:
            DamagedEvidence: the file does not match its digest, or is not a valid CSV.
        """
        rows = read_rows(self.path, self.former)
        return [{**dict.fromkeys(self.identity, ""), **row} for row in rows]

    def replace(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write new rows in place of all rows of the same cases and phases; keep other rows."""
        new = [{name: text_of(value) for name, value in row.items()} for row in rows]
        replaced = {self.case_of(row) for row in new}
        with self._locked():
            kept = self.read()
            position = _first_position(kept, replaced, self.case_of)
            kept = [row for row in kept if self.case_of(row) not in replaced]
            self._write(kept[:position] + new + kept[position:])

    def hold(self, rows: list[Row]) -> None:
        """Write these rows as the whole file, unless the file already has exactly these rows."""
        with self._locked():
            if not self.holds(rows):
                self._write(rows)

    def holds(self, rows: list[Row]) -> bool:
        """Whether the file consists of exactly these rows and matches the digest beside it."""
        return holds(self.path, self._text(rows))

    def equals(self, other: Evidence) -> bool:
        """Whether both files have the same content, and this one matches the digest beside it.

        Raises:
            DamagedEvidence: the other file does not match its digest.
        """
        content = read_signed(other.path)
        return content is not None and holds(self.path, content)

    def keep(self, wanted: Callable[[Row], bool]) -> int:
        """Drop the rows for which `wanted` is false; return how many were dropped."""
        with self._locked():
            rows = self.read()
            kept = [row for row in rows if wanted(row)]
            if len(kept) < len(rows):
                self._write(kept)
        return len(rows) - len(kept)

    def set_aside(self) -> Path:
        """Rename the file and its digest to `*.damaged`; return the new path of the file."""
        return set_aside(self.path)

    def case_of(self, row: Row) -> tuple[str, ...]:
        """Return the texts of a row in `case_columns`: its axis values, implementation, phase."""
        return tuple(row.get(name, "") for name in self.case_columns)

    def _columns(self, rows: list[Row]) -> list[str]:
        known = [*self.identity, *_AFTER_IDENTITY]
        found = dict.fromkeys(name for row in rows for name in row)
        topic = [name for name in found if name not in known and name not in _LAST]
        return [*known, *topic, *_LAST]

    def _text(self, rows: list[Row]) -> bytes:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, self._columns(rows), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue().encode(errors="backslashreplace")

    def _write(self, rows: list[Row]) -> None:
        _remove_leftovers(self.path)
        write_signed(self.path, self._text(rows))

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.path.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing, against other jobs' writes there."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = lock_folder(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def lock_folder(folder: Path, operation: int) -> int:
    """Lock a folder with `flock`; return the descriptor that holds the lock until it is closed.

    Raises:
        BlockingIOError: `operation` has LOCK_NB, and another process holds the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        os.close(descriptor)
        if error.errno != errno.EBADF:
            raise
        # NFS locks only what is open for writing: a file in the folder.
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, operation)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def _first_position(rows: list[Row], replaced: set, case_of) -> int:
    for position, row in enumerate(rows):
        if case_of(row) in replaced:
            return position
    return len(rows)


def read_rows(path: Path, former: Former = MappingProxyType({})) -> list[Row]:
    """Return the rows of a CSV after a check of its digest; see `Evidence.read`."""
    content = read_signed(path)
    if content is None:
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DamagedEvidence(f"{path} is not a CSV: {error}") from None
    if any(None in row or None in row.values() for row in rows):
        raise DamagedEvidence(f"{path} has a row that is shorter or longer than its first line")
    for axis, today in former.items():
        for row in rows:
            if row.get(axis) in today:
                row[axis] = today[row[axis]]
    return rows


def read_signed(path: Path) -> bytes | None:
    """Return the content of a file after a check of its digest; None if there is no such file.

    Raises:
        DamagedEvidence: the file does not match its digest, has no digest, or cannot be read.
    """
    digests = path.with_suffix(".sha256")
    try:
        content, recorded = None, b""
        # Another job may have replaced the file between the two reads: then they differ once more.
        while not _matches(content, recorded):
            before = content, recorded
            content, recorded = path.read_bytes(), digests.read_bytes()
            if before == (content, recorded):
                raise DamagedEvidence(
                    f"{path} was edited or truncated: it does not match its digest"
                )
    except FileNotFoundError as error:
        if str(error.filename) == str(path):
            return None
        raise DamagedEvidence(
            f"{path} has no digest: {digests.name} is missing beside it"
        ) from None
    except OSError as error:
        raise DamagedEvidence(f"{error.filename} cannot be read: {error.strerror}") from None
    return content


def _matches(content: bytes | None, digests: bytes) -> bool:
    lines = [line.split() for line in digests.splitlines()]
    listed = {words[0] for words in lines if words}
    return content is not None and hashlib.sha256(content).hexdigest().encode() in listed


def holds(path: Path, content: bytes) -> bool:
    """Whether the file at `path` has exactly this content and matches the digest beside it."""
    try:
        return read_signed(path) == content
    except DamagedEvidence:
        return False


def write_signed(path: Path, content: bytes) -> None:
    """Write a file and its digest; a killed writer leaves a file that matches a listed digest."""
    digests = path.with_suffix(".sha256")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = hashlib.sha256(content).hexdigest()
    old = [file_digest(path)] if path.is_file() else []
    write_atomically(digests, _digest_lines(path, *old, new))
    write_atomically(path, content)
    write_atomically(digests, _digest_lines(path, new))


def set_aside(path: Path) -> Path:
    """Rename a file and its digest to `*.damaged`; return the new path of the file."""
    for one in (path.with_suffix(".sha256"), path):
        aside = one.with_name(f"{one.name}.damaged")
        if one.exists():
            if aside.is_dir():
                shutil.rmtree(aside)
            os.replace(one, aside)
    return aside


def _digest_lines(path: Path, *digests: str) -> bytes:
    return "".join(f"{value}  {path.name}\n" for value in digests).encode()


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees either its old content or its new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def no_later_than_now(paths: Iterable[Path]) -> None:
    """Set the modification times of files that lie in the future to now.

    After the system clock was set back, Snakemake would fail: its outputs look older than inputs.
    """
    now = time.time()
    for path in paths:
        if path.is_file() and path.stat().st_mtime > now:
            os.utime(path, (now, now))


def _remove_leftovers(path: Path) -> None:
    """Delete the temporary files of writers that were killed. The caller holds the lock."""
    for name in (path.name, path.with_suffix(".sha256").name):
        for temporary in path.parent.glob(f".{glob.escape(name)}.*"):
            temporary.unlink(missing_ok=True)
