"""Expected outcomes of planted implementations, and how they are judged from measured rows.

A planted implementation is wrong, slow, fake or harmful on purpose. Its neighbour is an
implementation of the project, measured in the same session.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lmperf.gate import FAILED
from lmperf.names import STATUSES, mark_words, phase_words
from lmperf.reporting.evidence import Evidence, having
from lmperf.reporting.foreign import plain
from lmperf.reporting.gains import pairs
from lmperf.reporting.words import end, listed, percent, ratio, sig
from lmperf.selftest.planted import LEFT_BEHIND
from lmperf.statistics import FASTER

# The benchmark that measures the planted implementations.
STEM = "flash_attention"
# The one that measures the planted strategies of several ranks.
RANKED_STEM = "distributed"
# The one that measures what they hide of their communication.
LEDGER_STEM = "distributed_overlap"
# A neighbour whose time is more than this multiple of its undisturbed time was disturbed. Drift
# between two sessions is smaller; the loss of one thread of two, or a spinning thread on every
# core, doubles the time.
DRIFT = 1.5
_BESIDE = "the implementation beside it"
_KEPT = f"{_BESIDE} ok, in at most {DRIFT:g} times its undisturbed time"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a planted implementation in words; `held`: whether it is as expected."""

    words: str
    held: bool


@dataclass(frozen=True)
class Found:
    """The rows of a session, from which one planted implementation is judged.

    Attributes:
        evidence: all rows of the session, as a report reads them.
        name: name of the planted implementation.
        neighbour: name of the project's implementation that was timed in the same session.
        quiet: phase -> least ms of the neighbour in the session without harmful implementations.
        stem: the benchmark that measured the session.
    """

    evidence: Evidence
    name: str
    neighbour: str
    quiet: dict[str, float]
    stem: str = STEM

    def rows(self, name: str | None = None) -> pd.DataFrame:
        """Return the rows of an implementation (default: the planted one), indexed by phase."""
        rows = self.evidence.rows(self.stem)
        return having(rows, implementation=name or self.name).set_index("phase")

    def verdicts(self, base: str) -> pd.DataFrame:
        """Return the speed-up over `base` by phase: columns ratio, low, high and verdict."""
        sides = ({"implementation": name} for name in (self.name, base))
        found = pairs(self.evidence, self.stem, *sides)
        return found[found["ratio"].notna()].set_index("phase")


def least_ms(rows: pd.DataFrame) -> dict[str, float]:
    """Return phase -> least median of a round in ms, which brief disturbances do not affect."""
    ok = rows[rows["status"] == "ok"]
    return {
        phase: min(map(float, str(rounds).split(";"))) for phase, rounds in ok["rounds_ms"].items()
    }


@dataclass(frozen=True)
class Withheld:
    """Expects that each phase in `phases` (default: all) failed its check and has no time.

    The reason of each row must contain one of `reasons`.
    """

    reasons: tuple[str, ...]
    phases: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return f"withheld{_in(self.phases)}: {' or '.join(self.reasons)}"

    def __call__(self, found: Found) -> Outcome:
        rows = _of(found.rows(), self.phases)
        red = rows["status"].isin(FAILED) & rows["median_ms"].isna()
        held = red & _names_any(rows["reason"], self.reasons)
        return Outcome(_said(found.rows()), len(rows) > 0 and bool(held.all()))


@dataclass(frozen=True)
class Ended:
    """Expects `status` and `reason` in the phases `phases` (default: all), and an ok neighbour."""

    status: str
    reason: str
    phases: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return f"{STATUSES[self.status]}{_in(self.phases)}: {self.reason}; {_BESIDE} ok"

    def __call__(self, found: Found) -> Outcome:
        rows, neighbour = _of(found.rows(), self.phases), found.rows(found.neighbour)
        held = (rows["status"] == self.status) & _names_any(rows["reason"], (self.reason,))
        words = _said(found.rows())
        words += "" if _all_ok(neighbour) else f"; {_BESIDE}: {_said(neighbour)}"
        return Outcome(words, len(rows) > 0 and bool(held.all()) and _all_ok(neighbour))


@dataclass(frozen=True)
class Reads:
    """Expects that every phase is ok and has one of the verdicts `verdicts` against `base`.

    Attributes:
        first_call_s: least seconds that the column `compile_s` must give for the first call.
        seen: the verdict that at least one phase must have.
        marked: the mark that every phase must have.
    """

    verdicts: tuple[str, ...]
    base: str
    first_call_s: float | None = None
    seen: str | None = None
    marked: str | None = None

    @property
    def words(self) -> str:
        first = "" if self.first_call_s is None else ", with the time of its first call"
        seen = "" if self.seen is None else f", {self.seen} in at least one phase"
        marked = "" if self.marked is None else f", each phase marked: {mark_words(self.marked)}"
        return f"ok, {' or '.join(self.verdicts)} compared with {self.base}{seen}{first}{marked}"

    def __call__(self, found: Found) -> Outcome:
        rows, verdicts = found.rows(), found.verdicts(self.base)
        held = _all_ok(rows) and len(verdicts) == len(rows)
        held = held and bool(verdicts["verdict"].isin(self.verdicts).all())
        held = held and (self.seen is None or bool((verdicts["verdict"] == self.seen).any()))
        held = held and (self.marked is None or all(self.marked in names for names in _marks(rows)))
        said = _said(rows, verdicts) + _disturbed(rows)
        if self.first_call_s is not None:
            seconds = rows["compile_s"].max()
            held = held and bool(seconds >= self.first_call_s)
            said += f"; first call {sig(seconds)} s"
        return Outcome(said, held)


@dataclass(frozen=True)
class NotFaster:
    """Expects no time, or no verdict faster than the neighbour; and `NeighbourKept`."""

    words = f"withheld, or no faster than {_BESIDE}; {_KEPT}"

    def __call__(self, found: Found) -> Outcome:
        rows, verdicts = found.rows(), found.verdicts(found.neighbour)
        neighbour = NeighbourKept()(found)
        held = neighbour.held and not (verdicts["verdict"] == FASTER).any()
        return Outcome(f"{_said(rows, verdicts)}; {neighbour.words}", held)


@dataclass(frozen=True)
class NeighbourKept:
    """Expects that the neighbour is ok and takes at most DRIFT times its undisturbed time."""

    words = _KEPT

    def __call__(self, found: Found) -> Outcome:
        neighbour = found.rows(found.neighbour)
        if not _all_ok(neighbour):
            return Outcome(f"{_BESIDE}: {_said(neighbour)}", False)
        now = least_ms(neighbour)
        ratios = [now[phase] / ms for phase, ms in found.quiet.items()]
        worst = max(ratios, default=float("nan"))
        words = f"{_BESIDE} ok, in {sig(worst)} times its undisturbed time"
        words += _disturbed(neighbour)
        return Outcome(words, len(ratios) == len(neighbour) and worst <= DRIFT)


@dataclass(frozen=True)
class Marked:
    """Expects that every phase is ok, and that at least one has the mark `mark`."""

    mark: str

    @property
    def words(self) -> str:
        return f"ok, marked: {mark_words(self.mark)}"

    def __call__(self, found: Found) -> Outcome:
        rows = found.rows()
        held = any(self.mark in names for names in _marks(rows))
        words = f"{_said(rows)}, marked: {mark_words(self.mark)}" if held else _said(rows)
        return Outcome(words, held and _all_ok(rows))


@dataclass(frozen=True)
class Perhaps:
    """Expects that each phase is withheld or ok, because the checks may miss the fault.

    The reason of each withheld row must contain one of `reasons`.

    Attributes:
        often: the least share of runs in which at least one phase is withheld.
    """

    reasons: tuple[str, ...]
    often: float

    @property
    def words(self) -> str:
        return (
            f"withheld in at least one phase, in {percent(self.often, 0)} of runs or more:"
            f" {' or '.join(self.reasons)}; ok in the others, a known limit"
        )

    def __call__(self, found: Found) -> Outcome:
        rows = found.rows()
        red = rows["status"].isin(FAILED)
        ok = rows["state"].isna() & rows["median_ms"].notna()
        held = ok | (red & _names_any(rows["reason"], self.reasons))
        missed = ", not detected this time" if ok.all() else ""
        return Outcome(_said(rows) + missed, len(rows) > 0 and bool(held.all()))


@dataclass(frozen=True)
class Hides:
    """Expects a ledger in which at most the share `most` of the communication is hidden."""

    most: float

    @property
    def words(self) -> str:
        return f"at most {percent(self.most, 0)} of its communication hidden"

    def __call__(self, found: Found) -> Outcome:
        rows = found.rows()
        shares = rows["hidden_share"].dropna() if "hidden_share" in rows else []
        if len(shares) == 0:
            return Outcome(_said(rows), False)
        exposed = rows["exposed_ms"].max()
        words = f"{percent(shares.max(), 0)} hidden, {sig(exposed)} ms exposed"
        return Outcome(words, bool(shares.max() <= self.most and exposed > 0))


@dataclass(frozen=True)
class NothingLeft:
    """Expects that every phase is ok, and that no process with the argument LEFT_BEHIND runs."""

    words = "ok, and no process of it is left"

    def __call__(self, found: Found) -> Outcome:
        rows, left = found.rows(), _processes_with(LEFT_BEHIND)
        words = f"processes left behind: {len(left)}"
        return Outcome(f"{_said(rows)}; {words}", not left and _all_ok(rows))


def _processes_with(argument: str) -> list[int]:
    """The ids of the processes that have a command line argument; none without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _all_ok(rows: pd.DataFrame) -> bool:
    return len(rows) > 0 and bool((rows["state"].isna() & rows["median_ms"].notna()).all())


def _marks(rows: pd.DataFrame) -> list[list[str]]:
    """The marks of each row."""
    return [str(marks).split(";") for marks in rows["marks"].fillna("")]


def _disturbed(rows: pd.DataFrame) -> str:
    """In words that conclusions from times may be wrong; empty if the machine was not loaded."""
    is_loaded = any("loaded" in names for names in _marks(rows))
    return f" ({mark_words('loaded')})" if is_loaded else ""


def _names_any(reasons: pd.Series, words: Iterable[str]) -> pd.Series:
    return reasons.map(lambda reason: any(word in plain(str(reason)) for word in words))


def _of(rows: pd.DataFrame, phases: tuple[str, ...]) -> pd.DataFrame:
    return rows.loc[[phase for phase in rows.index if not phases or phase in phases]]


def _in(phases: tuple[str, ...]) -> str:
    return f" in {_phases(phases)}" if phases else ""


def _phases(names: Iterable[str]) -> str:
    return listed(phase_words(name) for name in names)


def _said(rows: pd.DataFrame, verdicts: pd.DataFrame | None = None) -> str:
    """Return the rows in words; phases with the same words are joined."""
    by_words: dict[str, list[str]] = {}
    for phase, row in rows.iterrows():
        by_words.setdefault(_row_words(phase, row, verdicts), []).append(phase)
    if not by_words:
        return "no row"
    if len(by_words) == 1:
        return next(iter(by_words))
    return "; ".join(f"{_phases(phases)}: {words}" for words, phases in by_words.items())


def _row_words(phase, row: pd.Series, verdicts: pd.DataFrame | None) -> str:
    if row["status"] != "ok":
        reason = row["reason"]
        words = STATUSES.get(row["status"], row["status"])
        return f"{words}: {plain(reason)}" if isinstance(reason, str) else words
    if verdicts is None or phase not in verdicts.index:
        return "ok"
    over = verdicts.loc[phase]
    interval = f"({end(over['low'])}-{end(over['high'])})"
    return f"ok, {over['verdict']}, {ratio(over['ratio'])} {interval}"
