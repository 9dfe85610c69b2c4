"""Rows of a benchmark on a machine: one CSV that is only appended to, and its latest rows.

Each group of rows begins with a line of column names. The first cell of each row is a digest of
these names and of the rest of the row; a row that was cut or edited is dropped. The rows of a group
are written at once, and taken back if the disk is full. The last measurement of a case and phase
replaces earlier ones. The published CSV is a view: the latest rows that are asked for, in the same
format.
"""

from __future__ import annotations

import codecs
import csv
import fcntl
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DIGEST = "digest"
Row = dict[str, str]


def text_of(value: Any) -> str:
    """Return a value as a cell: floats in full precision, None as an empty cell."""
    if value is None:
        return ""
    # repr(numpy.float64(0.5)) is "np.float64(0.5)", so its base class's repr is used.
    return float.__repr__(value) if isinstance(value, float) else str(value)


class Store:
    """The rows in a file.

    Args:
        case_columns: columns that identify a case and phase (axes, implementation, phase).
    """

    def __init__(self, path: Path, case_columns: Sequence[str]):
        self.path, self._case_columns = path, tuple(case_columns)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows durably, all or none.

        Raises:
            OSError: they could not be written; the file is as before.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # jobs on other devices
            size = os.fstat(file).st_size
            is_whole = not size or os.pread(file, 1, size - 1) == b"\n"
            text = (b"" if is_whole else b"\n") + _lines(rows)
            try:
                written = os.write(file, text)
                if written < len(text):
                    raise OSError(f"{self.path}: only {written} of {len(text)} bytes were written")
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)

    def read(self) -> tuple[list[Row], list[int]]:
        """Return the latest rows of each case and phase, and the numbers of damaged lines."""
        rows, damaged = read_lines(self.path)
        return self.latest(rows), damaged

    def latest(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows of the last measurement of each case and phase."""
        latest: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            case = self.case_of(row)
            known = latest.get(case, [])
            same = bool(known) and known[0].get("measured_at") == row.get("measured_at")
            latest[case] = [*known, row] if same else [row]
        return [row for rows in latest.values() for row in rows]

    def case_of(self, row: Mapping[str, str]) -> tuple[str, ...]:
        """Return the texts of a row that identify its case and phase."""
        return tuple(row.get(name, "") for name in self._case_columns)


def as_written(content: bytes) -> bytes:
    """Return the content of a text file as before Git or an editor changed its line endings or
    added a byte order mark."""
    return content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")


def read_lines(path: Path) -> tuple[list[Row], list[int]]:
    """Return all rows of a file in its order, and the numbers of damaged lines."""
    try:
        text = as_written(path.read_bytes()).decode(errors="backslashreplace")
    except FileNotFoundError:
        return [], []
    header, names = "", []
    rows: list[Row] = []
    damaged: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        digest, _, rest = line.partition(",")
        if digest == DIGEST:
            header, names = rest, next(csv.reader([rest]))
        elif digest == _digest(header, rest):
            rows.append(dict(zip(names, next(csv.reader([rest])), strict=True)))
        elif line:
            damaged.append(number)
    return rows, damaged


def write_view(path: Path, rows: Iterable[Row]) -> None:
    """Replace a published CSV by these rows; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new, content = path.with_name(f".{path.name}.{os.getpid()}"), _lines([*rows])
    if path.is_file() and path.read_bytes() == content:
        return
    try:
        new.write_bytes(content)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    header = _joined(names)
    lines = [f"{DIGEST},{header}"]
    for row in rows:
        rest = _joined(" ".join(text_of(row.get(name)).split()) for name in names)
        lines.append(f"{_digest(header, rest)},{rest}")
    return "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")


def _joined(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def _digest(names: str, rest: str) -> str:
    text = f"{names}\n{rest}"
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]
