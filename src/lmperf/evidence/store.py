"""Evidence on disk: published CSVs in `evidence/`, and all measured rows behind them in `store/`.

`report/<machine>/store/<stem>.csv` is only appended to (`lmperf.measuring.store`).
`report/<machine>/evidence/<stem>.csv` is a view of it: the latest rows that the configuration asks
for. Git holds the second copy. In both files each line has a digest; a damaged row is dropped and
named. Older CSVs have one digest for the whole file, in `<stem>.sha256` beside it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmperf.measuring.store import (
    DIGEST,
    Row,
    Store,
    as_written,
    read_lines,
    text_of,
    write_view,
)

__all__ = ["DamagedEvidence", "Evidence", "Row", "as_written", "read", "read_rows", "text_of"]

# Folders of `report/<machine>`.
EVIDENCE, STORE = "evidence", "store"
# The costs of measuring: one row for each job.
COST, COST_COLUMNS = "cost", ("stem", "started_at")


class DamagedEvidence(Exception):
    """A file of evidence is not as lmperf wrote it; the message names the file and the fault."""


class Evidence:
    """The rows of one benchmark on one machine.

    Args:
        directory: `report/<machine>`.
        stem: name of the CSV.
        case_columns: columns that identify a case and phase; its last measurement counts.
    """

    def __init__(self, directory: Path, stem: str, case_columns: Sequence[str]):
        self.path = directory / EVIDENCE / f"{stem}.csv"
        self.case_columns = tuple(case_columns)
        self._store = Store(directory / STORE / f"{stem}.csv", case_columns)

    def published(self) -> tuple[list[Row], list[str]]:
        """Return the rows of the view, and a message for damage in it.

        A merge may have left two measurements of a case; the later one counts.
        """
        rows, faults = self._read(self.path)
        if _is_old(self.path):  # rows of a case have times of their own there
            return rows, faults
        latest: dict[tuple[str, ...], str] = {}
        for row in rows:
            case = self.case_of(row)
            latest[case] = max(latest.get(case, ""), row["measured_at"])
        return [row for row in rows if row["measured_at"] == latest[self.case_of(row)]], faults

    def known(self) -> tuple[list[Row], list[str]]:
        """Return the latest rows of view and store, and a message for each damaged file.

        A clone has no store; then the rows of the view, which Git holds, are all that is known.
        """
        published, faults = self.published()
        stored, damaged = [], []
        if not _is_old(self._store.path):
            stored, damaged = self._read(self._store.path)
        copies = [self._by_case(published), self._by_case(self._store.latest(stored))]
        cases = dict.fromkeys(case for copy in copies for case in copy)
        latest = [max((copy[case] for copy in copies if case in copy), key=_when) for case in cases]
        return [row for rows in latest for row in rows], [*faults, *damaged]

    def _read(self, path: Path) -> tuple[list[Row], list[str]]:
        rows, faults = read(path)
        # An axis that was added after a row was measured is empty in that row.
        return [dict.fromkeys(self.case_columns, "") | row for row in rows], faults

    def _by_case(self, rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
        found: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            found.setdefault(self.case_of(row), []).append(row)
        return found

    def case_of(self, row: Mapping[str, str]) -> tuple[str, ...]:
        """Return the texts of a row that identify its case and phase."""
        return self._store.case_of(row)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add new rows to the store durably, all or none."""
        if _is_old(self._store.path):  # the view has its rows
            self._store.path.unlink()
            self._store.path.with_suffix(".sha256").unlink(missing_ok=True)
        self._store.append(rows)

    def mend(self, rows: Sequence[Row]) -> None:
        """Replace the store by these rows, so that damage in it is named only once."""
        write_view(self._store.path, rows)

    def publish(self, rows: Iterable[Row]) -> None:
        """Make these rows the view."""
        write_view(self.path, rows)
        self.path.with_suffix(".sha256").unlink(missing_ok=True)
        os.utime(self.path)  # for Snakemake, even if the content is as before


def read(path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of a CSV, and a message if lines are damaged; nothing without a file."""
    if _is_old(path):
        rows, faults = _read_old(path)
    else:
        rows, lines = read_lines(path)
        first = f"line {lines[0]} is" if len(lines) == 1 else f"{len(lines)} lines are"
        faults = [f"{path}: {first} damaged and not used{_cause(path)}"] if lines else []
    return rows, faults


def _cause(path: Path) -> str:
    """Return what damaged a file and what to do, if its content tells; else an empty text."""
    content = path.read_bytes()
    if line := conflict_in(content):
        return f": line {line} is a conflict marker of a merge; take one side, or measure again"
    # Spreadsheets write True as TRUE, and in many countries semicolons.
    if re.search(rb"\A[^,\n]+;|,(TRUE|FALSE),", content):
        return ": a spreadsheet saved it; restore it from Git, and let it save a copy elsewhere"
    return ""


def conflict_in(content: bytes) -> int:
    """Return the number of the first line that is a conflict marker of a merge; 0 without one."""
    found = re.search(rb"(?m)^<{7} ", content)
    return content.count(b"\n", 0, found.start()) + 1 if found else 0


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV; an empty list without a file.

    Raises:
        DamagedEvidence: some of it is damaged.
    """
    rows, faults = read(path)
    for words in faults:
        raise DamagedEvidence(words)
    return rows


def _when(rows: Sequence[Row]) -> tuple[str, int]:
    """When a case was measured; of copies of one measurement, the one with more rows is later."""
    return rows[0].get("measured_at", ""), len(rows)


def _is_old(path: Path) -> bool:
    """Whether a CSV was written before lines had digests."""
    return path.is_file() and path.with_suffix(".sha256").is_file() and not _has_digests(path)


def _has_digests(path: Path) -> bool:
    return as_written(path.read_bytes()).startswith(f"{DIGEST},".encode())


def _read_old(path: Path) -> tuple[list[Row], list[str]]:
    content = as_written(path.read_bytes()).rstrip(b"\n") + b"\n"
    recorded = path.with_suffix(".sha256").read_text(errors="replace").split()
    if hashlib.sha256(content).hexdigest() not in recorded:
        cause = _cause(path) or ": it was edited, sorted or saved by another program"
        return [], [f"{path} does not match its digest and is not used{cause}"]
    return [*csv.DictReader(io.StringIO(content.decode(), newline=""))], []


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees either its old content or its new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def no_later_than_now(paths: Iterable[Path]) -> None:
    """Set the modification times of files that lie in the future to now.

    After the system clock was set back, Snakemake would fail: its outputs look older than inputs.
    """
    now = time.time()
    for path in paths:
        if path.is_file() and path.stat().st_mtime > now:
            os.utime(path, (now, now))
