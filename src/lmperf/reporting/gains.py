"""Speed-ups of rows over others, and what a sentence may say of them.

`pairs` estimates and judges every pair of rows; `lmperf.statistics` has the mathematics. `Gain`
says several pairs as one: its words follow from the verdicts, so no template words a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pandas as pd

from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.evidence.plausible import EVENT_STEP_MS
from lmperf.reporting.evidence import WITHHELD, Evidence, having, once, parts
from lmperf.reporting.numbers import Number, keys_of, known
from lmperf.reporting.results import EMPTY
from lmperf.reporting.words import Count, NotMeasured, Range, name, range_, ratio
from lmperf.statistics import (
    FALSE_DISCOVERY,
    FASTER,
    LEAST_FLOOR,
    SAME,
    SLOWER,
    UNRESOLVED,
    Ratio,
    adjusted,
    medians,
    paired,
    unpaired,
    verdict,
)

# What a pair knows of the row that a row is compared with, in addition to its cell.
BASE = [
    *("state", "waits", "holds", "signs", "noise_kind", "key", "gpus", "environment", "together"),
    *("ms", "n", "compile_s", "peak_gib"),
]
OF_STEPS = ["device_ms", "launches"]  # in addition, of a benchmark that has them
PRECISE = 0.10  # an unresolved speed-up known to this much takes part in a mean


@once
def pairs(evidence: Evidence, stem: str, ours: Mapping, base: Mapping) -> pd.DataFrame:
    """The rows of `ours` that have a row of `base` in the same cell, indexed like the rows.

    ours, base: values of the columns in which the two sides differ.

    Adds ratio, low, high, n (rounds), floor, verdict, holds and signs (of both rows), and `why`:
    the words in place of a ratio. is_timed: whether a `Gain` counts the pair; is_known: whether it
    also holds and is resolved, or known to within PRECISE.

    Two train steps of one GPU are compared by their stretches, other rows by the rounds that were
    timed in turn. A step that waited for the CPU is compared but never judged. False discovery is
    controlled over all pairs.
    """
    rows = evidence.rows(stem)
    keys = [column for column in load(stem).identity if column not in ours]
    mine, theirs = (having(rows, **side)[keys].reset_index() for side in (ours, base))
    found = mine.merge(theirs, "inner", keys, suffixes=("", "_base"))
    # Labels of the rows of a benchmark are their places.
    sides = found["index"].to_numpy(), found["index_base"].to_numpy()
    mine, theirs = (rows.take(side) for side in sides)
    known = [*keys, *BASE, *(name for name in OF_STEPS if name in theirs)]
    theirs = theirs[known].set_axis(mine.index).add_suffix("_base")
    both = pd.concat([mine, theirs], axis=1)
    ok = both["state"].isna() & both["state_base"].isna()
    is_step = (both["phase"] == "train_step") & ok
    # Method 7 timed single steps and recorded no number of calls.
    lasting = is_step & both[["n", "n_base"]].notna().all(axis=1)
    lasting &= both["gpus"].fillna("") == both["gpus_base"].fillna("")
    lasting &= both["environment"] == both["environment_base"]
    times = evidence.rounds(stem)
    counts = [(~np.isnan(times[side])).sum(axis=1) for side in sides]
    in_turn = ok & ~lasting & (both["together"] == both["together_base"]) & (counts[0] == counts[1])
    found = pd.concat(
        [
            _ratios(times, *sides, lasting, unpaired),
            _ratios(times, *sides, in_turn, paired),
        ]
    ).reindex(both.index)
    unsound = ~(both["holds"] & both["holds_base"]) | both["waits"] | both["waits_base"]
    p = adjusted(found["p"].mask(unsound))
    floors = [evidence.floors_of(both[kind]) for kind in ("noise_kind", "noise_kind_base")]
    floor = np.fmax(*floors).clip(lower=found["step"])
    numbers = Ratio(*(found[column].to_numpy() for column in ("ratio", "low", "high", "p", "n")))
    said = verdict(numbers, floor.to_numpy(), p <= FALSE_DISCOVERY, unsound.to_numpy())
    states = zip(both["state"], both["state_base"], strict=True)
    withheld = np.array([not {a, b}.isdisjoint(WITHHELD) for a, b in states], dtype=bool)
    both["why"] = np.where(ok, "not compared", np.where(withheld, "withheld", EMPTY))
    both["signs"] = [
        tuple(dict.fromkeys((*a, *b)))
        for a, b in zip(both["signs"], both["signs_base"], strict=True)
    ]
    there = found["ratio"].notna()
    both = both.assign(
        **found[["ratio", "low", "high", "n"]],
        floor=floor,
        waits=both["waits"] | both["waits_base"],
        holds=both["holds"] & both["holds_base"],
        verdict=pd.Series(said, both.index, dtype=object).where(there),
    )
    width = np.fmax(both["high"] / both["ratio"], both["ratio"] / both["low"]) - 1
    is_timed = (there | withheld) & ~both["waits"]
    is_known = both["holds"] & ((both["verdict"] != UNRESOLVED) | (width <= PRECISE))
    return both.assign(is_timed=is_timed, is_known=is_timed & is_known)


def _ratios(times, mine, theirs, compared: pd.Series, estimate) -> pd.DataFrame:
    """The ratios of the pairs that are compared, of matrices of times by round."""
    sides = [times[of[compared.to_numpy()]] for of in (theirs, mine)]
    found = estimate(*sides)
    step = EVENT_STEP_MS / np.fmin(*map(medians, sides))
    columns = dict(zip(("ratio", "low", "high", "p", "n"), vars(found).values(), strict=True))
    return pd.DataFrame(columns | {"step": step}, compared.index[compared], dtype=float)


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

    def by(self, axis: str) -> list[tuple]:
        """(value of an axis, its gain), for those of which something can be said."""
        return [(value, Gain(part)) for (value,), part in parts(self.timed, axis) if _says(part)]

    def __iter__(self):
        """The phases in words with their gains."""
        return iter([(name(phase), gain) for phase, gain in self.by("phase")])

    @property
    def mean(self) -> float:
        """The geometric mean over cells."""
        return known(float(np.exp(np.log(self.rows["ratio"]).mean())), keys_of(self.rows))

    @property
    def range(self) -> Range:
        return known(Range.of(self.rows["ratio"]), keys_of(self.rows))

    @property
    def as_number(self) -> Number:
        """The mean with the range of the speed-ups; of one, with its interval."""
        ends = ("low", "high") if len(self.rows) == 1 else ("ratio", "ratio")
        low, high = (self.rows[name] for name in ends)
        return Number(self.mean, low.min(), high.max(), self.verdict, self.mean.rows)

    @property
    def saved(self) -> Range:
        """By which fractions peaks of memory are lower."""
        return Range.of(1 - self.timed["peak_gib"] / self.timed["peak_gib_base"])

    @property
    def verdict(self) -> str:
        """That of all rows; else whether the mean exceeds the mean of their noise floors."""
        if len(said := {*self.rows["verdict"]}) == 1:
            return said.pop()
        floor = np.exp(np.log1p(self.rows["floor"].clip(lower=LEAST_FLOOR)).mean()) - 1
        return verdict(Ratio(*[self.mean] * 3, np.nan, len(self.rows)), floor)

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
        found = Count(int((resolved["verdict"] == verdict).sum()), len(resolved))
        return known(found, keys_of(resolved))

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
        return f"{ratio(self.mean)} ({cells})" if len(self.rows) > 1 and " to " in cells else cells


def _says(part: pd.DataFrame) -> bool:
    with suppress(NotMeasured):
        return Gain(part).verdict != UNRESOLVED
    return False
