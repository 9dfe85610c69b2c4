"""Whether a machine was at work while it measured, and a permission to publish all the same.

A row is unsettled if it has a mark of `names.UNSETTLED`: other programs used the machine, or its
device or host had become slower. Up to `MOST` of a benchmark's rows may be; an idle machine has
fewer. With more, `verify` fails and `publish` refuses, unless a permission is recorded. It stands
in `machine.json`, so that it is published and shown:

    "allowed": {"reason": why, "rows": number, "of": digest of the rows, "at": time}

It holds for exactly the rows that were unsettled when it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from lmperf.benchmark import Benchmark
from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.evidence.consistent import is_unsettled
from lmperf.evidence.facts import read_facts, write_facts
from lmperf.evidence.store import Row
from lmperf.evidence.syntax import digest
from lmperf.names import UNSETTLED, in_order, mark_words

KIND = "measured at work"
# Share of a benchmark's timed rows that may be unsettled.
MOST = 0.02
LONGEST_REASON = 200


@dataclass
class AtWork:
    """The timed rows of a machine that are fresh, and which of them are unsettled.

    Attributes:
        timed: stem -> number of timed rows.
        rows: stem -> unsettled rows.
        allowed: why they may be published all the same; empty if nobody has said so.
    """

    timed: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    allowed: str = ""

    def add(self, benchmark: Benchmark, rows: Iterable[Row]) -> None:
        """Count the fresh rows of a benchmark."""
        timed = [row for row in rows if row.get("median_ms")]
        self.timed[benchmark.stem] = len(timed)
        self.rows[benchmark.stem] = [row for row in timed if is_unsettled(row)]

    @property
    def too_many(self) -> list[str]:
        """The stems of the benchmarks of which more than `MOST` is unsettled."""
        return [stem for stem, rows in self.rows.items() if len(rows) > MOST * self.timed[stem]]

    @property
    def is_fit(self) -> bool:
        """Whether the evidence may be published as far as the load of the machine goes."""
        return not self.too_many or bool(self.allowed)

    @property
    def number(self) -> int:
        """The number of unsettled rows of all benchmarks."""
        return sum(map(len, self.rows.values()))

    @property
    def words(self) -> str:
        """A sentence on each benchmark with too many unsettled rows, the last without full stop.

        "40 of 80 fresh rows of Attention may not hold"
        """
        return ". ".join(
            f"{len(self.rows[stem])} of {self.timed[stem]} fresh rows of {load(stem).title} may not"
            " hold"
            for stem in self.too_many
        )

    def words_of(self, stem: str) -> str:
        """The same of one benchmark, with the marks and the command that helps."""
        rows = self.rows[stem]
        found = _marks_of(rows)
        why = ", ".join(f"{number} {mark_words(mark)}" for mark, number in found.items())
        of = f"{len(rows)} of {self.timed[stem]} rows may not hold ({why})"
        return f"{of}; make remeasure measures them again"

    @property
    def digest(self) -> str:
        """The digest of the unsettled rows, for which alone a permission holds."""
        rows = sorted(
            (stem, row["measured_at"], row["key"], row["implementation"], row["phase"])
            for stem, rows in self.rows.items()
            for row in rows
        )
        return digest(repr(rows))

    def take_permission(self, facts: Mapping) -> None:
        """Set `allowed` if the facts of the machine hold a permission for exactly these rows."""
        found = facts.get("allowed") or {}
        self.allowed = found["reason"] if found.get("of") == self.digest else ""


def _marks_of(rows: Iterable[Row]) -> dict[str, int]:
    """Mark for which a time may not hold -> number of rows with it, in reading order."""
    found = Counter(m for row in rows for m in row["marks"].split(";") if m in UNSETTLED)
    return {mark: found[mark] for mark in in_order("marks", found)}


def allow(directory: Path, machine: str, found: AtWork, reason: str) -> None:
    """Record in `machine.json` why the unsettled rows may be published."""
    facts = read_facts(directory, machine)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    of = {"reason": reason, "rows": found.number, "of": found.digest, "at": at}
    write_facts(directory, facts | {"allowed": of})


def check_reason(option: str, text: str) -> str:
    """Return a reason for publishing, without spaces at its ends.

    Raises:
        UserError: it is empty, too long or not printable.
    """
    reason = text.strip()
    if not reason or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise UserError(
            f"{option}: the reason must be one line of at most"
            f" {LONGEST_REASON} characters, and not empty"
        )
    return reason
