"""Rows of evidence on disk: a CSV beside its digest, replaced whole, never half-written.

`<stem>.csv` holds the rows; `<stem>.sha256` its digest in the format of sha256sum, so that a file
that was edited, or cut at the end of a line, is found out. While the CSV is being replaced the
digest file names the old and the new digest: killed at any moment, the CSV matches one of the two.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

STATISTICS = ("median_ms", "mean_ms", "std_ms", "p20_ms", "p80_ms", "repetitions")
_AFTER_IDENTITY = (
    *("status", "reason", "requested_bytes", "free_bytes", *STATISTICS),
    *("rounds_ms", "again_ms", "together", "compile_s"),
    *("flops", "bytes", "tflops", "bandwidth_gbps", "max_error", "error_bound"),
)
_LAST = ("clock_mhz", "power_w", "throttle", "seed", "environment", "commit", "measured_at", "key")

Row = dict[str, str]


class DamagedEvidence(Exception):
    """A CSV that is not what lmperf wrote; the message names the file and what is wrong."""


def text_of(value: Any) -> str:
    """A cell of the CSV: floats in full precision, nothing for None."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


class Evidence:
    """The rows of one benchmark on one machine.

    Args:
        path: `report/<machine>/evidence/<stem>.csv`.
        identity: columns that name a row (axes, implementation, phase, index).
        case_columns: columns that name a case and phase; a new measurement replaces all its rows.
    """

    def __init__(self, path: Path, identity: Sequence[str], case_columns: Sequence[str]):
        self.path = path
        self.identity = tuple(identity)
        self.case_columns = tuple(case_columns)

    @property
    def digest_path(self) -> Path:
        return self.path.with_suffix(".sha256")

    def read(self) -> list[Row]:
        """All rows; none where nothing was measured yet.

        An axis that the benchmark has got since the rows were written is empty.

        Raises:
            DamagedEvidence: the file is not the one whose digest was recorded.
        """
        return [{**dict.fromkeys(self.identity, ""), **row} for row in read_rows(self.path)]

    def replace(self, rows: Iterable[dict[str, Any]]) -> None:
        """Put new rows in place of those of the same case and phase, and keep all others."""
        new = [{name: text_of(value) for name, value in row.items()} for row in rows]
        replaced = {self._case_of(row) for row in new}
        with self._locked():
            kept = self.read()
            position = _first_position(kept, replaced, self._case_of)
            kept = [row for row in kept if self._case_of(row) not in replaced]
            self._write(kept[:position] + new + kept[position:])

    def keep(self, wanted: Callable[[Row], bool]) -> int:
        """Drop the rows that are not wanted; how many there were."""
        with self._locked():
            rows = self.read()
            kept = [row for row in rows if wanted(row)]
            if len(kept) < len(rows):
                self._write(kept)
        return len(rows) - len(kept)

    def rekey(self, key_of: Callable[[Row], str]) -> None:
        """Give every row the key that `key_of` has for it; nothing else changes."""
        with self._locked():
            self._write([{**row, "key": key_of(row)} for row in self.read()])

    def set_aside(self) -> Path:
        """Move a damaged file out of the way, without losing it."""
        aside = self.path.with_suffix(".csv.damaged")
        os.replace(self.path, aside)
        self.digest_path.unlink(missing_ok=True)
        return aside

    def _case_of(self, row: Row) -> tuple[str, ...]:
        return tuple(row.get(name, "") for name in self.case_columns)

    def _columns(self, rows: list[Row]) -> list[str]:
        known = [*self.identity, *_AFTER_IDENTITY]
        found = dict.fromkeys(name for row in rows for name in row)
        topic = [name for name in found if name not in known and name not in _LAST]
        return [*known, *topic, *_LAST]

    def _write(self, rows: list[Row]) -> None:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, self._columns(rows), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = buffer.getvalue().encode()
        new = hashlib.sha256(content).hexdigest()
        old = [file_digest(self.path)] if self.path.exists() else []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.digest_path, self._digest_lines(*old, new))
        write_atomically(self.path, content)
        write_atomically(self.digest_path, self._digest_lines(new))

    def _digest_lines(self, *digests: str) -> bytes:
        return "".join(f"{value}  {self.path.name}\n" for value in digests).encode()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)


def _first_position(rows: list[Row], replaced: set, case_of) -> int:
    for position, row in enumerate(rows):
        if case_of(row) in replaced:
            return position
    return len(rows)


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV whose digest holds; see `Evidence.read`."""
    if not path.exists():
        return []
    digests = path.with_suffix(".sha256")
    if not digests.exists():
        raise DamagedEvidence(f"{path} has no digest beside it: {digests.name} is missing")
    recorded = {line.split()[0] for line in digests.read_text().splitlines() if line}
    if file_digest(path) not in recorded:
        raise DamagedEvidence(f"{path} is not what was measured: edited or cut, by its digest")
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file whole; a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)
