"""Expected outcomes of planted implementations, and how they are judged from measured rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from lmperf.gate import FAILED
from lmperf.names import STATUSES, phase_words
from lmperf.reporting.untrusted import plain
from lmperf.reporting.words import listed, percent, sig

# Marks that name something an implementation does; others say something of the machine.
_NAMING = {"reused_output"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a planted implementation in words; `held`: whether it is as expected."""

    words: str
    held: bool


@dataclass(frozen=True)
class Expected:
    """What is expected of the rows of a planted implementation: by default, that they are ok.

    Attributes:
        reasons: each row failed its check and has no time, and its reason contains one of these.
        phases: the phases whose rows failed; empty: all.
        mark: the mark that one of the rows has; None: no mark that names what it does.
        most_hidden: the largest share of the communication that the ledger may count as hidden.
    """

    reasons: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    mark: str | None = None
    most_hidden: float | None = None

    @property
    def words(self) -> str:
        if self.reasons:
            where = f" in {_phases(self.phases)}" if self.phases else ""
            return f"withheld{where}: {' or '.join(self.reasons)}"
        if self.most_hidden is not None:
            return f"at most {percent(self.most_hidden, 0)} of its communication hidden"
        return f"ok, marked: {self.mark.replace('_', ' ')}" if self.mark else "ok"

    def outcome(self, rows: pd.DataFrame) -> Outcome:
        """The outcome of rows, indexed by phase."""
        if self.reasons:
            return Outcome(in_words(rows), self._are_withheld(rows))
        if self.most_hidden is not None:
            return self._of_ledger(rows)
        marks = {mark for text in rows["marks"].fillna("") for mark in str(text).split(";")}
        named = sorted(marks & _NAMING)
        words = f", marked: {listed(named).replace('_', ' ')}" if named else ""
        held = all_ok(rows) and (self.mark in named if self.mark else not named)
        return Outcome(f"{in_words(rows)}{words}", held)

    def _are_withheld(self, rows: pd.DataFrame) -> bool:
        judged = rows[rows.index.isin(self.phases)] if self.phases else rows
        texts = [plain(str(reason)) for reason in judged["reason"]]
        named = [any(reason in text for reason in self.reasons) for text in texts]
        failed = judged["status"].isin(FAILED) & judged["median_ms"].isna()
        return bool(named) and all(named) and bool(failed.all())

    def _of_ledger(self, rows: pd.DataFrame) -> Outcome:
        shares = rows["hidden_share"].dropna() if "hidden_share" in rows else []
        if len(shares) == 0:
            return Outcome(in_words(rows), False)
        exposed = rows["exposed_ms"].max()
        words = f"{percent(shares.max(), 0)} hidden, {sig(exposed)} ms exposed"
        return Outcome(words, bool(shares.max() <= self.most_hidden and exposed > 0))


OK = Expected()


def all_ok(rows: pd.DataFrame) -> bool:
    """Whether there are rows, and each has a result."""
    return len(rows) > 0 and bool((rows["status"] == "ok").all() and rows["state"].isna().all())


def in_words(rows: pd.DataFrame) -> str:
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
