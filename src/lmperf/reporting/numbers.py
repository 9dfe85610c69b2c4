"""Numbers as text: significant digits, units, ranges, counts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from lmperf.results import EMPTY

MIB = 2**20
GIB = 2**30
FIXED_DECIMALS = 4


@dataclass(frozen=True)
class Spread:
    """Least value, median, greatest value and number of values of a quantity over several cells."""

    low: float
    middle: float
    high: float
    n: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """The spread of at least one value."""
        series = pd.Series(list(values), dtype=float)
        return Spread(series.min(), series.median(), series.max(), len(series))


@dataclass(frozen=True)
class Count:
    """A count of cases in words: ``k`` of ``n``."""

    k: int
    n: int

    @property
    def all(self) -> bool:
        return self.k == self.n

    @property
    def none(self) -> bool:
        return self.k == 0

    def __str__(self) -> str:
        return f"{self.k:,} of {self.n:,}"


def absent(value) -> bool:
    """Whether a value of the evidence is empty: None or NaN."""
    return value is None or value != value


def finite(value) -> float | None:
    """The value as a float; None if it is empty or not finite."""
    return None if absent(value) or not math.isfinite(value) else float(value)


def whole(value) -> int | None:
    """The value as an int; None if it is empty."""
    return None if absent(value) else int(value)


def decimals(value: float, digits: int = 3) -> int:
    """The number of decimals that show ``value`` to ``digits`` significant digits."""
    if not math.isfinite(value) or value == 0:
        return 0
    shown = float(f"{value:.{digits - 1}e}")
    return max(0, digits - 1 - math.floor(math.log10(abs(shown))))


def significant(value: float, digits: int = 3) -> str:
    """``value`` to ``digits`` significant digits, with thousands separators and no exponent.

    Digits before the decimal point are never rounded: 12,345 stays so; see ``rounded``.
    """
    if absent(value):
        return EMPTY
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:,.{decimals(value, digits)}f}"


def rounded(value: float, digits: int = 3) -> str:
    """``value`` to ``digits`` significant digits, also before the decimal point: 12,300."""
    if absent(value) or math.isinf(value) or value == 0:
        return significant(value, digits)
    return significant(float(f"{value:.{digits - 1}e}"), digits)


def precise(value: float) -> str:
    """``value`` to four significant digits."""
    return significant(value, 4)


def fixed(value: float) -> str:
    """``value`` with FIXED_DECIMALS decimals; a dash if it is empty."""
    return EMPTY if absent(value) else f"{value:.{FIXED_DECIMALS}f}"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 10 else rounded(value)


def ratio(value: float) -> str:
    """A ratio, ``1.42x``; two decimals below ten, three digits above."""
    return EMPTY if absent(value) else f"{_factor(value)}x"


def interval(value: float, low: float, high: float) -> str:
    """A ratio with its interval: ``1.42x (1.38-1.45)``.

    An end close to 1 has enough decimals to differ from 1: ``1.02x (1.0009-1.03)``.
    """
    return f"{ratio(value)} ({_end(low)}-{_end(high)})"


def _end(value: float) -> str:
    return f"{value:#.{decimals(value - 1, 1)}f}" if 0 < abs(value - 1) < 0.005 else _factor(value)


def spread(mean: float, std: float, digits: int = 3) -> str:
    """``mean ± std`` with the decimals of the mean, or more if the std would round to zero."""
    if absent(mean):
        return EMPTY
    if absent(std):
        return significant(mean, digits)
    places = decimals(mean, digits)
    finer = decimals(std, 1) if 0 < std < 0.5 * 10**-places else places
    return f"{mean:,.{places}f} ± {std:,.{finer}f}"


def percent(fraction: float, places: int = 1) -> str:
    """A fraction as a percentage, without a minus sign if it rounds to zero."""
    if absent(fraction):
        return EMPTY
    text = f"{100 * fraction:.{places}f}"
    return (text[1:] if text.strip("-0.") == "" and text.startswith("-") else text) + " %"


def percent_digits(value: float) -> str:
    """A percentage with one decimal, without ``%``: the header of its column has it."""
    return percent(value / 100).removesuffix(" %")


def whole_percent(value: float) -> str:
    """A percentage without decimals and without ``%``: the header of its column has it."""
    return percent(value / 100, 0).rstrip(" %")


def signed_percent(fraction: float, places: int = 1) -> str:
    """A relative difference as a percentage with ``+`` or ``-``."""
    text = percent(fraction, places)
    shown = text.strip("-0. %") != ""
    return f"+{text}" if shown and text != EMPTY and fraction > 0 else text


def gib(size: float) -> str:
    """Bytes in GiB with one decimal; less than 1 GiB in MiB with three significant digits."""
    if absent(size):
        return EMPTY
    value = size / GIB
    return f"{value:,.1f} GiB" if value >= 1 else f"{significant(1024 * value)} MiB"


def error(value: float) -> str:
    """An error or its bound: two significant digits in exponent form."""
    return EMPTY if absent(value) else f"{value:.1e}"


def listed(items, word: str = "and") -> str:
    """Items joined as ``a``, ``a and b`` or ``a, b and c``; ``none`` without items.

    word: before the last item, as ``or``.
    """
    items = [f"{item:g}" if isinstance(item, float) else str(item) for item in items]
    if not items:
        return "none"
    return f" {word} ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def ranged(values: Spread, form=significant) -> str:
    """``low to high`` formatted by ``form``, the unit once; one value if both are the same text."""
    low, high = form(values.low), form(values.high)
    if low == high:
        return low
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(f' {unit}')} to {high}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 cell``, ``3 cells``."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """The plural of a noun that a report counts."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
