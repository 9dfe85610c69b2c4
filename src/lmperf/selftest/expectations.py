"""Expected outcomes of planted implementations, and how they are judged from measured rows.

An expectation has the expected outcome in words, and returns the outcome that the rows of a planted
implementation, indexed by phase, have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from lmperf.gate import FAILED
from lmperf.names import STATUSES, phase_words
from lmperf.reporting.untrusted import plain
from lmperf.reporting.words import listed, percent, sig

# Marks that name something an implementation does.
_NAMING = {"reused_output"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a planted implementation in words; `held`: whether it is as expected."""

    words: str
    held: bool


@dataclass(frozen=True)
class Withheld:
    """Expects that each phase in `phases` (default: all) failed its check and has no time.

    The reason of each row must contain one of `reasons`.
    """

    reasons: tuple[str, ...]
    phases: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        where = f" in {_phases(self.phases)}" if self.phases else ""
        return f"withheld{where}: {' or '.join(self.reasons)}"

    def __call__(self, rows: pd.DataFrame) -> Outcome:
        judged = rows[rows.index.isin(self.phases)] if self.phases else rows
        texts = [plain(str(reason)) for reason in judged["reason"]]
        held = bool(texts) and all(any(one in text for one in self.reasons) for text in texts)
        held = held and bool((judged["status"].isin(FAILED) & judged["median_ms"].isna()).all())
        return Outcome(said(rows), held)


@dataclass(frozen=True)
class Passes:
    """Expects that every phase is ok, and that at least one has the mark `mark`; None: no mark.

    Marks that say something of the machine do not count.
    """

    mark: str | None = None

    @property
    def words(self) -> str:
        return f"ok, marked: {self.mark.replace('_', ' ')}" if self.mark else "ok"

    def __call__(self, rows: pd.DataFrame) -> Outcome:
        marks = {mark for text in rows["marks"].fillna("") for mark in str(text).split(";")}
        found = sorted(marks & _NAMING)
        words = f", marked: {listed(found).replace('_', ' ')}" if found else ""
        held = all_ok(rows) and (self.mark in found if self.mark else not found)
        return Outcome(f"{said(rows)}{words}", held)


@dataclass(frozen=True)
class Hides:
    """Expects a ledger in which at most the share `most` of the communication is hidden."""

    most: float

    @property
    def words(self) -> str:
        return f"at most {percent(self.most, 0)} of its communication hidden"

    def __call__(self, rows: pd.DataFrame) -> Outcome:
        shares = rows["hidden_share"].dropna() if "hidden_share" in rows else []
        if len(shares) == 0:
            return Outcome(said(rows), False)
        exposed = rows["exposed_ms"].max()
        words = f"{percent(shares.max(), 0)} hidden, {sig(exposed)} ms exposed"
        return Outcome(words, bool(shares.max() <= self.most and exposed > 0))


def all_ok(rows: pd.DataFrame) -> bool:
    """Whether there are rows, and each has a result."""
    return len(rows) > 0 and bool((rows["status"] == "ok").all() and rows["state"].isna().all())


def said(rows: pd.DataFrame) -> str:
    """Return the rows in words; phases with the same words are joined."""
    by_words: dict[str, list[str]] = {}
    for phase, row in rows.iterrows():
        by_words.setdefault(_row_words(row), []).append(phase)
    if len(by_words) <= 1:
        return next(iter(by_words), "no row")
    return "; ".join(f"{_phases(phases)}: {words}" for words, phases in by_words.items())


def _row_words(row: pd.Series) -> str:
    status, reason = row["status"], row["reason"]
    words = STATUSES.get(status, status)
    return f"{words}: {plain(reason)}" if isinstance(reason, str) and status != "ok" else words


def _phases(names: Iterable[str]) -> str:
    return listed(phase_words(name) for name in names)
