"""Expected outcomes of planted implementations, and how they are judged from measured rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from lmperf.gate import FAILED
from lmperf.names import STATUSES, phase_words
from lmperf.reporting.untrusted import plain
from lmperf.reporting.words import listed, percent, sig

# The mark that names something an implementation does; others say something of the machine.
_REUSED = "reused_output"


@dataclass(frozen=True)
class Expected:
    """What is expected of the rows of a planted implementation: by default, that they are ok.

    Attributes:
        reasons: each row failed its check and has no time, and its reason contains one of these.
        phases: the phases whose rows failed; empty: all.
        is_marked: whether one of the rows has the mark for a reused output; else none has.
        most_hidden: the largest share of the communication that the ledger may count as hidden.
    """

    reasons: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    is_marked: bool = False
    most_hidden: float | None = None

    @property
    def words(self) -> str:
        if self.reasons:
            where = f" in {_phases(self.phases)}" if self.phases else ""
            return f"withheld{where}: {' or '.join(self.reasons)}"
        if self.most_hidden is not None:
            return f"at most {percent(self.most_hidden, 0)} of its communication hidden"
        return f"ok{_MARKED}" if self.is_marked else "ok"

    def is_met(self, rows: pd.DataFrame) -> bool:
        """Whether rows, indexed by phase, are as expected."""
        if self.reasons:
            judged = rows[rows.index.isin(self.phases)] if self.phases else rows
            texts = [plain(str(reason)) for reason in judged["reason"]]
            named = [any(reason in text for reason in self.reasons) for text in texts]
            failed = judged["status"].isin(FAILED) & judged["median_ms"].isna()
            return bool(named) and all(named) and bool(failed.all())
        if self.most_hidden is not None:
            hidden, exposed_ms = _hidden(rows)
            return bool(hidden <= self.most_hidden and exposed_ms > 0)
        return all_ok(rows) and _is_marked(rows) == self.is_marked


OK = Expected()
_MARKED = f", marked: {_REUSED.replace('_', ' ')}"


def _is_marked(rows: pd.DataFrame) -> bool:
    return any(_REUSED in str(marks).split(";") for marks in rows["marks"])


def _hidden(rows: pd.DataFrame) -> tuple[float, float]:
    """The largest hidden share and exposed ms of communication; NaN without a ledger."""
    return tuple(rows.reindex(columns=["hidden_share", "exposed_ms"]).max())


def all_ok(rows: pd.DataFrame) -> bool:
    """Whether there are rows, and each has a result."""
    return len(rows) > 0 and bool((rows["status"] == "ok").all() and rows["state"].isna().all())


def in_words(rows: pd.DataFrame) -> str:
    """Return the rows in words; phases with the same words are joined."""
    hidden, exposed_ms = _hidden(rows)
    if hidden == hidden:
        return f"{percent(hidden, 0)} hidden, {sig(exposed_ms)} ms exposed"
    marked = _MARKED if _is_marked(rows) else ""
    by_words: dict[str, list[str]] = {}
    for phase, row in rows.iterrows():
        by_words.setdefault(_row_words(row), []).append(phase)
    if len(by_words) <= 1:
        return f"{next(iter(by_words), 'no row')}{marked}"
    each = (f"{_phases(phases)}: {words}" for words, phases in by_words.items())
    return f"{'; '.join(each)}{marked}"


def _row_words(row: pd.Series) -> str:
    status, reason = row["status"], row["reason"]
    words = STATUSES.get(status, status)
    return f"{words}: {plain(reason)}" if isinstance(reason, str) and status != "ok" else words


def _phases(names: Iterable[str]) -> str:
    return listed(phase_words(name) for name in names)
