"""Evidence on disk: published CSVs in `evidence/`, and all measured rows behind them in `store/`.

`report/<machine>/store/<stem>.csv` is only appended to. The rows of a group are written at once,
and taken back if the disk is full. `report/<machine>/evidence/<stem>.csv` is a view of it: the
latest rows that the configuration asks for. Git holds the second copy.

In both files each group of rows begins with a line of column names. The first cell of each row is a
digest of these names and of the rest of the row; a row that was cut or edited is dropped and named.
"""

from __future__ import annotations

import codecs
import csv
import fcntl
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmperf.benchmark import Benchmark
from lmperf.evidence.rows import as_read
from lmperf.evidence.syntax import digest

# Folders of `report/<machine>`.
EVIDENCE, STORE = "evidence", "store"
# The costs of measuring: one row for each job.
COST, COST_COLUMNS = "cost", ("stem", "started_at")
# The name of the first column.
DIGEST = "digest"

Row = dict[str, str]


class RowFiles:
    """The rows of one benchmark on one machine.

    Args:
        directory: `report/<machine>`.
        stem: name of the CSV.
        case_columns: columns that identify a case and phase; its last measurement counts.
    """

    def __init__(self, directory: Path, stem: str, case_columns: Sequence[str]):
        self.path = directory / EVIDENCE / f"{stem}.csv"
        self._store = directory / STORE / f"{stem}.csv"
        self._case_columns = tuple(case_columns)

    def published(self) -> tuple[list[Row], list[str]]:
        """Return the latest rows of the view, and a message for damage in it.

        A merge may have left two measurements of a case.
        """
        rows, faults = read(self.path)
        return self._latest(rows), faults

    def known(self) -> tuple[list[Row], list[str]]:
        """Return the latest rows of view and store, and a message for each damaged file.

        A clone has no store; then the rows of the view, which Git holds, are all that is known.
        """
        (published, faults), (stored, damaged) = read(self.path), read(self._store)
        return self._latest(published, stored), [*faults, *damaged]

    def _latest(self, published: Sequence[Row], stored: Sequence[Row] = ()) -> list[Row]:
        """The rows of the last measurement of each case; of two copies, the one with more rows.

        In the store the last line counts, in case that a clock was ahead. The view may have a later
        measurement, as from Git, unless its time is ahead of the clock.
        """
        # Case -> time -> rows, of the view and of the store
        copies: dict[tuple[str, ...], tuple[dict[str, list[Row]], ...]] = {}
        for number, rows in enumerate((published, stored)):
            for row in rows:
                # An axis that was added after a row was measured is empty in that row.
                row = dict.fromkeys(self._case_columns, "") | row
                case = tuple(row[name] for name in self._case_columns)
                by_time = copies.setdefault(case, ({}, {}))[number]
                by_time.setdefault(row.get("measured_at", ""), []).append(row)
        latest: list[Row] = []
        for of_view, of_store in copies.values():
            times = [*[*of_store][-1:], *(at for at in of_view if at not in of_store)]
            at = max(times, key=lambda at: "" if is_ahead(at) else at)
            latest += max(of_view.get(at, []), of_store.get(at, []), key=len)
        return latest

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to the store durably, all or none.

        Raises:
            OSError: they could not be written; the file is as before.
        """
        with locked_file(self._store) as file:
            size = os.fstat(file).st_size
            is_whole = not size or os.pread(file, 1, size - 1) == b"\n"
            text = (b"" if is_whole else b"\n") + _lines(rows)
            try:
                written = os.write(file, text)
                if written < len(text):
                    raise OSError(f"{self._store}: {written} of {len(text)} bytes were written")
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise

    def mend(self, rows: Sequence[Row]) -> None:
        """Replace the store by these rows, so that damage in it is named only once."""
        write_view(self._store, rows)

    def publish(self, rows: Iterable[Row]) -> None:
        """Make these rows the view."""
        write_view(self.path, rows)


def files_of(benchmark: Benchmark, directory: Path) -> RowFiles:
    """Return the rows of a benchmark in `report/<machine>`."""
    columns = benchmark.identity[: len(benchmark.identity) - len(benchmark.index)]
    return RowFiles(directory, benchmark.stem, columns)


@contextmanager
def locked_file(path: Path) -> Iterator[int]:
    """Open a file to append to, while jobs on other devices wait; yields its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def now() -> str:
    """Return the time as rows have it, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def is_ahead(at: str) -> bool:
    """Whether the time of a row is ahead of this machine's clock: one of two clocks is wrong."""
    return at > now()


def read(path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of a CSV with their final status, and a message if lines are damaged; nothing
    without a file."""
    try:
        text = as_written(path.read_bytes()).decode(errors="backslashreplace")
    except FileNotFoundError:
        return [], []
    header, names = "", []
    rows: list[Row] = []
    damaged: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        cell, _, rest = line.partition(",")
        if cell == DIGEST:
            header, names = rest, next(csv.reader([rest]))
        elif cell == _digest(header, rest):
            rows.append(as_read(dict(zip(names, next(csv.reader([rest])), strict=True))))
        elif line:
            damaged.append(number)
    if not damaged:
        return rows, []
    first = f"line {damaged[0]} is" if len(damaged) == 1 else f"{len(damaged)} lines are"
    return rows, [f"{path}: {first} damaged and not used{_cause(path.read_bytes())}"]


def _cause(content: bytes) -> str:
    """Return what damaged a file and what to do, if its content tells; else an empty text."""
    if line := conflict_in(content):
        return f": line {line} is a conflict marker of a merge; take one side, or measure again"
    # Spreadsheets write True as TRUE, and in many countries semicolons.
    if re.search(rb"\A[^,\n]+;|,(TRUE|FALSE),", content):
        return ": a spreadsheet saved it; restore it from Git, and let it save a copy elsewhere"
    if not as_written(content).startswith(f"{DIGEST},".encode()):
        return ": it lacks digests, as those of an earlier version of lmperf; measure again"
    return ""


def conflict_in(content: bytes) -> int:
    """Return the number of the first line that is a conflict marker of a merge; 0 without one."""
    marker = re.search(rb"(?m)^<{7} ", content)
    return content.count(b"\n", 0, marker.start()) + 1 if marker else 0


def as_written(content: bytes) -> bytes:
    """Return the content of a text file as before Git or an editor changed its line endings or
    added a byte order mark."""
    return content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")


def write_view(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a CSV by these rows; a reader sees the old file or the new one."""
    write_atomically(path, _lines([*rows]))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees either its old content or its new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    header = _joined(names)
    lines = [f"{DIGEST},{header}"]
    for row in rows:
        rest = _joined(" ".join(text_of(row.get(name)).split()) for name in names)
        lines.append(f"{_digest(header, rest)},{rest}")
    return "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")


def text_of(value: Any) -> str:
    """Return a value as a cell: floats in full precision, None as an empty cell."""
    if value is None:
        return ""
    # repr(numpy.float64(0.5)) is "np.float64(0.5)", so its base class's repr is used.
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _joined(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def _digest(names: str, rest: str) -> str:
    return digest(f"{names}\n{rest}")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
