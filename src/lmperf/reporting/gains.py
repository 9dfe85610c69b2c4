"""Speed-ups of rows over others of one benchmark, and what a sentence may say of them.

`rows_over` has every pair of rows with its verdict. `Gain` says several pairs as one: its words
follow from the verdicts, so no template words a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache

import numpy as np
import pandas as pd

from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.reporting.cells import EMPTY
from lmperf.reporting.evidence import Evidence, cached_by_evidence
from lmperf.reporting.frames import having, parts, required
from lmperf.reporting.judging import WITHHELD
from lmperf.reporting.numbers import Number, of_rows
from lmperf.reporting.pairs import ONE_RUN, decided, pairs
from lmperf.reporting.words import Count, NotMeasured, Range, name, range_, ratio
from lmperf.statistics import FASTER, LEAST_FLOOR, SAME, SLOWER, UNRESOLVED, Ratio, verdict

MIXED = "mixed"  # of cells that differ, and whose mean is neither faster nor slower
COUNTED = {FASTER: "faster", SAME: "same", SLOWER: "slower", UNRESOLVED: "not decided"}
PRECISE = 0.10  # an unresolved speed-up known to this much takes part in a mean


@cached_by_evidence
def rows_over(evidence: Evidence, stem: str, ours: Mapping, base: Mapping) -> pd.DataFrame:
    """The rows of `ours` that have a row of `base` in the same cell, indexed like the rows.

    ours, base: values of the columns in which the two sides differ.

    Adds the columns of `pairs.decided`, waits, holds and signs (of both rows), and `why`: the words
    in place of a ratio. is_timed: whether a `Gain` counts the pair; is_known: whether it also holds
    and is resolved, or known to within PRECISE.
    """
    rows = evidence.comparable(stem)
    sides = having(rows, **ours), having(rows, **base)
    cell = tuple(column for column in load(stem).identity if column not in ours)
    return _no_pairs(stem, cell) if any(side.empty for side in sides) else _over(*sides, cell)


@cache
def _no_pairs(stem: str, cell: Sequence[str]) -> pd.DataFrame:
    """The pairs of a side without rows: comparing none takes as long as comparing some."""
    none = Evidence("", {}).comparable(stem)
    return _over(none, none, cell)


def _over(left: pd.DataFrame, right: pd.DataFrame, cell: Sequence[str]) -> pd.DataFrame:
    """The pairs of two sides with the columns of `rows_over`."""
    both = decided(pairs(left, right, cell), ONE_RUN)
    states = both[["state", "state_base"]]
    withheld, failed = states.isin(WITHHELD).any(axis=1), states.notna().any(axis=1)
    why = np.where(withheld, "withheld", np.where(failed, EMPTY, "not compared"))
    signs = zip(both["signs"], both["signs_base"], strict=True)
    both = both.assign(
        why=why,
        signs=[tuple(dict.fromkeys((*left, *right))) for left, right in signs],
        waits=both["waits"] | both["waits_base"],
        holds=both["holds"] & both["holds_base"],
    )
    width = np.fmax(both["high"] / both["ratio"], both["ratio"] / both["low"]) - 1
    is_timed = (both["ratio"].notna() | withheld) & ~both["waits"]
    is_known = both["holds"] & ((both["verdict"] != UNRESOLVED) | (width <= PRECISE))
    return both.assign(is_timed=is_timed, is_known=is_timed & is_known)


class Gain:
    """Speed-ups of several cells as one: `str` words them, `>` and `<` hold for each interval.

    A step that waits for the CPU takes no part.
    Raises NotMeasured unless most of the pairs hold and are resolved or at least precise.
    """

    def __init__(self, timed: pd.DataFrame):
        self.timed = timed[timed["is_timed"]]
        self.rows = self.timed[self.timed["is_known"]]
        if self.rows.empty or 2 * len(self.rows) < len(self.timed):
            raise NotMeasured("fewer than half of the comparisons hold")

    def where(self, **axes) -> Gain:
        """The speed-ups of the rows with these values; a list means any of them."""
        return Gain(having(self.timed, **axes))

    def by(self, *axes: str) -> list[tuple]:
        """(value, ..., gain) for each combination of values of which something can be said."""
        every = parts(self.timed, *axes)
        return [(*values, Gain(part)) for values, part in every if _says(part)]

    def __iter__(self):
        """The phases in words with their gains."""
        return iter([(name(phase), gain) for phase, gain in self.by("phase")])

    @property
    def mean(self) -> float:
        """The geometric mean over cells."""
        return of_rows(float(np.exp(np.log(self.rows["ratio"]).mean())), self.rows)

    @property
    def range(self) -> Range:
        return of_rows(Range.of(self.rows["ratio"]), self.rows)

    @property
    def as_number(self) -> Number:
        """The mean with the range of the speed-ups; of one, with its interval."""
        ends = ("low", "high") if len(self.rows) == 1 else ("ratio", "ratio")
        low, high = (self.rows[name] for name in ends)
        return Number(self.mean, low.min(), high.max(), self.verdict, self.mean.rows)

    @property
    def saved(self) -> Range:
        """By which fractions peaks of memory are lower."""
        saved = 1 - self.timed["peak_gib"] / self.timed["peak_gib_base"]
        return of_rows(Range.of(saved), self.timed)

    @property
    def verdict(self) -> str:
        """That of all rows; else that of their mean, beyond the mean of their floors, or MIXED."""
        if self.rows["verdict"].nunique() == 1:
            return self.rows["verdict"].iloc[0]
        floor = np.exp(np.log1p(self.rows["floor"].clip(lower=LEAST_FLOOR)).mean()) - 1
        of_mean = verdict(Ratio(*[self.mean] * 3, np.nan, len(self.rows)), floor)
        return of_mean if of_mean in (FASTER, SLOWER) else MIXED

    @property
    def is_faster(self) -> bool:
        return self.verdict == FASTER

    @property
    def is_slower(self) -> bool:
        return self.verdict == SLOWER

    @property
    def is_same(self) -> bool:
        return self.verdict == SAME

    def counted(self, verdict: str) -> Count:
        """How many of the resolved comparisons have a verdict."""
        resolved = self.rows[self.rows["verdict"] != UNRESOLVED]
        count = Count(int((resolved["verdict"] == verdict).sum()), len(resolved))
        return of_rows(count, resolved)

    @property
    def faster(self) -> Count:
        return self.counted(FASTER)

    @property
    def slower(self) -> Count:
        return self.counted(SLOWER)

    def faster_from(self, axis: str) -> float | None:
        """The value of an axis from which on every resolved comparison is faster.

        None: there is none, or it is the greatest one.
        """
        rows = self.rows[self.rows["verdict"] != UNRESOLVED]
        steady = (rows["verdict"] == FASTER).groupby(rows[axis]).all()[::-1].cummin()[::-1]
        return steady.index[steady].min() if steady.sum() > 1 else None

    def __gt__(self, bound: float) -> bool:
        return bool((self.rows["low"] > bound).all())

    def __lt__(self, bound: float) -> bool:
        return bool((self.rows["high"] < bound).all())

    def __eq__(self, other) -> bool:
        if not isinstance(other, Gain):
            raise UserError(f"speed-ups == {other!r}: compare their `verdict` or `mean`")
        return self is other

    __hash__ = object.__hash__

    def __str__(self) -> str:
        cells = range_(self.range, "ratio")
        if self.verdict == UNRESOLVED:
            raise NotMeasured("unresolved")
        if self.verdict == SAME:
            return f"on par ({cells})"
        if self.verdict == MIXED:
            return cells
        return f"{ratio(self.mean)} ({cells})" if len(self.rows) > 1 and " to " in cells else cells


class Tally:
    """How the speed-ups of all cells that hold stand, decided or not.

    `str`: ``0.95x to 1.21x (faster in 2, same in 1, slower in 3)``. Raises NotMeasured: none holds.
    """

    def __init__(self, pairs: pd.DataFrame):
        counts = pairs["is_timed"] & pairs["holds"] & pairs["ratio"].notna()
        self.rows = required(pairs[counts], "no comparison holds")

    @property
    def as_number(self) -> Number:
        low, middle, high = of_rows(Range.of(self.rows["ratio"]), self.rows)
        verdicts = self.rows["verdict"].unique()
        shared = verdicts[0] if len(verdicts) == 1 else MIXED
        return Number(middle, low, high, shared, low.rows)

    def __str__(self) -> str:
        counts = self.rows["verdict"].value_counts()
        numbers = {words: counts[kind] for kind, words in COUNTED.items() if kind in counts}
        phrases = [f"{words} in {number}" for words, number in numbers.items()]
        if len(numbers) == 1:
            (words,), number = numbers, len(self.rows)
            phrases = [words + {1: "", 2: " in both"}.get(number, f" in all {number}")]
        return f"{range_(self.rows['ratio'], 'ratio')} ({', '.join(phrases)})"


def _says(part: pd.DataFrame) -> bool:
    with suppress(NotMeasured):
        return Gain(part).verdict != UNRESOLVED
    return False
