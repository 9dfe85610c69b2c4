"""Numbers and lists as text: the filters of the templates and the formats of cells."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from lmperf import names
from lmperf.reporting.cells import EMPTY

MIB, GIB = 2**20, 2**30
MIB_IN_GIB = GIB // MIB
# Name of a tensor in the columns of errors -> its words.
TENSORS = {"out": "output", "lse": "logsumexp", "dq": "dQ", "dk": "dK", "dv": "dV"}


class NotMeasured(Exception):
    """A sentence asks for rows that do not exist or do not hold: it is left out."""


class Range(NamedTuple):
    """Least value, median and greatest value."""

    low: float
    middle: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> Range:
        numbers = np.array([*values], dtype=float)
        numbers = numbers[~np.isnan(numbers)]
        if not numbers.size:
            raise NotMeasured("no value")
        return Range(numbers.min(), np.median(numbers), numbers.max())


class Count(NamedTuple):
    """``k of n``."""

    k: int
    n: int

    def __str__(self) -> str:
        return f"{self.k:,} of {self.n:,}"


def absent(value) -> bool:
    """Whether a value is empty: None or NaN."""
    return value is None or (isinstance(value, float) and value != value)


def sig(value: float, digits: int = 3) -> str:
    """Significant digits with thousands separators; digits before the point are never rounded."""
    if absent(value):
        return EMPTY
    if math.isinf(value):
        return f"{value:+}".removeprefix("+")
    shown = float(f"{value:.{digits - 1}e}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(shown)))) if shown else 0
    return f"{value:,.{places}f}"


def rounded(value: float) -> str:
    """Three significant digits, also before the point: 1,320 for 1,324."""
    return EMPTY if absent(value) else sig(float(f"{value:.2e}"))


def precise(value: float) -> str:
    """Four significant digits, where two numbers are compared that hardly differ."""
    return sig(value, 4)


def whole(value: float) -> str:
    """An integer with thousands separators."""
    return EMPTY if absent(value) else f"{value:,.0f}"


def fixed(value: float, places: int = 1) -> str:
    """A number with a fixed number of decimals."""
    return EMPTY if absent(value) else f"{value:,.{places}f}"


def ratio(value: float) -> str:
    """A speed-up: ``1.42x``."""
    return EMPTY if absent(value) else f"{factor(value)}x"


def factor(value: float) -> str:
    """A ratio without a sign: ``1.42``, ``12.7``."""
    return EMPTY if absent(value) else f"{value:.2f}" if value < 10 else rounded(value)


def end(value: float) -> str:
    """An end of an interval of ratios, with enough digits to differ from 1."""
    near = 0 < abs(value - 1) < 0.005
    return f"{value:.{-math.floor(math.log10(abs(value - 1)))}f}" if near else factor(value)


def between(low: float, value: float, high: float) -> str:
    """A ratio with enough digits to stand within its interval."""
    return factor(value) if low <= float(factor(value).replace(",", "")) <= high else end(value)


def percent(value: float, places: int = 1) -> str:
    """A fraction as ``12.3 %``."""
    return EMPTY if absent(value) else f"{100 * value:,.{places}f} %"


def signed_percent(value: float, places: int = 1) -> str:
    """A change as ``+12.3 %``."""
    if absent(value):
        return EMPTY
    words = f"{100 * value:+.{places}f} %"
    return words if re.search("[1-9]", words) else words[1:]


def sheet(rate: float) -> str:
    """A rate of a data sheet, unrounded: shares of it are of this number."""
    return sig(rate) if absent(rate) else f"{rate:,g}"


def rounded_up(value: float) -> float:
    """A fraction rounded up to 0.1 %, for what stays within it."""
    return math.ceil(1e3 * value) / 1e3


def error(value: float) -> str:
    """An error in scientific notation with two digits."""
    return EMPTY if absent(value) else f"{value:.1e}"


def listed(items: Iterable, word: str = "and") -> str:
    """``a, b and c``."""
    *first, last = [f"{i:g}" if isinstance(i, float) else str(i) for i in items] or ["none"]
    return f"{', '.join(first)} {word} {last}" if first else last


def count(number: int, noun: str) -> str:
    """``1 row``, ``12 rows``."""
    return f"{number:,.12g} {noun}{'' if number == 1 else 's'}"


def range_(values: Iterable[float], form: str = "sig") -> str:
    """``low to high`` with the unit once; one value if both read the same."""
    low, _, high = map(FILTERS[form], Range.of(values))
    unit = f" {high.rpartition(' ')[2]}" if " " in high else ""
    return high if low == high else f"{low.removesuffix(unit)} to {high}"


def as_text(value) -> str:
    """A number as it is, with thousands separators; anything else as text."""
    return f"{value:,.12g}" if isinstance(value, int | float | np.number) else str(value)


def axis_value(axis: str, value, axes: Collection[str]) -> str:
    """An axis and its value, ``batch 4``, ``bf16``, ``CUDA graph``; empty for what is off.

    axes: all axes of the row, see `names.value_words`.
    """
    if absent(value) or value == "":
        return ""
    if isinstance(value, bool | np.bool_):
        return names.axis_words(axis) if value else ""
    words = as_text(names.value_words(axis, value, axes))
    is_clear = axis in ("dtype", "implementation", "phase")
    return words if is_clear else f"{names.axis_words(axis)} {words}"


def cell_words(row: Mapping[str, object], axes: Collection[str]) -> str:
    """What a row is of: its axes and their values (`axis_value`), but for those that are off."""
    return ", ".join(filter(None, (axis_value(axis, row[axis], axes) for axis in axes)))


def name(value) -> str:
    """An implementation, phase, dtype or size in words."""
    forms = (names.implementation_words, names.dtype_words, names.size_words)
    words = next((words for form in forms if (words := form(value)) != value), str(value))
    return names.PHASES.get(words, words)


FILTERS: dict[str, Callable] = {
    form.__name__.strip("_"): form
    for form in (
        *(sig, rounded, rounded_up, precise, whole, fixed, ratio, factor, percent, signed_percent),
        *(sheet, error, listed, count, range_, name),
    )
}
FILTERS |= {"in_full": names.size_in_full, "bytes": names.bytes_words}
# With an argument, for columns of tables and patterns of `each`.
FILTERS |= {f"fixed_{places}": partial(fixed, places=places) for places in (3, 4)}
FILTERS |= {"percent_0": partial(percent, places=0), "calls": partial(count, noun="call")}
FILTERS |= {"signed_percent_3": partial(signed_percent, places=3)}
FILTERS |= {f"range_{form}": partial(range_, form=form) for form in ("percent", "ratio")}
