"""Speed-ups as intervals: per-round ratios of rows that were timed in turn.

Two rows may be compared only if they share ``together``, the pass in which they were timed round
after round. The speed-up is the median of the per-round ratios (base / candidate, above 1 is
faster) with the exact interval of the median by order statistics: the number of the n ratios that
lie below the true median is binomial(n, 1/2), so [x_(k), x_(n+1-k)] covers it with
1 - 2 P(B <= k-1), whatever the distribution (David and Nagaraja, Order Statistics, 7.1). With
fewer than six rounds no such interval reaches 95 %: it is the range, and its true coverage is
stated.

The noise floor comes from pairs of one implementation with itself in the same rounds (A/A).

Verdicts: ``same`` where the whole interval lies within the noise floor or LEAST_FLOOR of one,
whichever is wider; ``faster`` or ``slower`` where the interval leaves out one and the ratio lies
beyond that; ``unresolved`` where the interval is too wide to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from lmperf.names import dtype_words, implementation_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.reporting.numbers import EMPTY, interval, ratio

CONFIDENCE = 0.95
FLOOR_QUANTILE = 0.95
LEAST_FLOOR = 0.01
FASTER, SLOWER, SAME, UNRESOLVED = "faster", "slower", "same", "unresolved"
WITHHELD = "withheld"
NOT_IN_TURN = "not timed in turn"
COLUMNS = ["ratio", "low", "high", "rounds", "floor", "verdict", "base_ms"]


@dataclass(frozen=True)
class Series:
    """Rows that make one column of a comparison: an implementation, numerics, or both.

    ``Series.of(implementation="compiled", dtype="tf32")`` is the implementation in those numerics;
    a column that is not named may have any value, which two compared rows then share.
    """

    where: tuple[tuple[str, str], ...]

    @staticmethod
    def of(**where: str) -> Series:
        return Series(tuple(sorted(where.items())))

    @property
    def words(self) -> str:
        """``compiled, TF32``; the numerics alone, or the implementation alone, where no more."""
        named = dict(self.where)
        form = {"implementation": implementation_words, "dtype": dtype_words}
        order = [name for name in ("implementation", "dtype") if name in named]
        return ", ".join(form[name](named[name]) for name in order)

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of a frame that are of this series."""
        wanted = pd.Series(True, frame.index)
        for column, value in self.where:
            wanted &= frame[column] == value
        return frame[wanted]


def speedups(evidence: MachineEvidence, stem: str, series: Series, base: Series) -> pd.DataFrame:
    """Speed-ups of the rows of a series over the rows of the base that agree in all else.

    Both series name the same columns.

    Returns:
        One row for each row of the series that was timed in turn with its base (index of
        ``evidence.frame(stem)``): ratio, low, high, rounds, floor (NaN where no A/A pair
        exists), verdict, and base_ms, the median of the base.
    """

    def make() -> pd.DataFrame:
        frame = evidence.frame(stem)
        floors = evidence.once(("floor", stem), lambda: noise_floor(frame))["floor"]
        usable = frame[gates.shown(frame) & frame["rounds_ms"].notna() & frame["together"].notna()]
        return _speedups(usable, series, base, floors)

    return evidence.once(("speedups", stem, series, base), make)


def compared(evidence: MachineEvidence, stem: str, series: Series, base: Series) -> pd.DataFrame:
    """The rows of a series that have a speed-up over the base, with the columns of ``speedups``."""
    found = speedups(evidence, stem, series, base)
    return evidence.frame(stem).loc[found.index].join(found)


def speedup_cells(
    evidence: MachineEvidence, stem: str, series: Series, base: Series, brackets: bool = True
) -> pd.Series:
    """The speed-up of each row of the series in words: ``1.42x (1.38-1.45)``, with its verdict
    where that is not plain from the interval; why there is none; a dash where there is no base.

    brackets: whether the interval is shown.
    """
    frame = evidence.frame(stem)
    rows = series.rows(frame)
    words = pd.Series(EMPTY, index=rows.index, dtype=object)
    both = _paired(frame, series, base, [])
    ok, red = frame["status"] == "ok", gates.red(frame)
    here, there = both.index, both["base_row"].to_numpy()
    words[here[ok.loc[here].to_numpy() & ok.loc[there].to_numpy()]] = NOT_IN_TURN
    words[here[red.loc[here].to_numpy() | red.loc[there].to_numpy()]] = WITHHELD
    found = speedups(evidence, stem, series, base)
    words[found.index] = [speedup_text(row, brackets) for row in found.itertuples(index=False)]
    own, bases = (frame.loc[rows] for rows in (found.index, both["base_row"].loc[found.index]))
    words[found.index] += list(map(marks.both, marks.signs(own), marks.signs(bases)))
    return words


def speedup_text(row, brackets: bool = True) -> str:
    """``1.42x (1.38-1.45)``; ``same`` or ``unresolved`` behind it where that is the verdict."""
    text = interval(row.ratio, row.low, row.high) if brackets else ratio(row.ratio)
    return f"{text} {row.verdict}" if row.verdict in (SAME, UNRESOLVED) else text


@cache
def order_statistics(rounds: int) -> tuple[int, int, float]:
    """Zero-based ranks (low, high) of the interval of the median of n values, and its coverage."""
    tails = np.cumsum([math.comb(rounds, k) for k in range(rounds + 1)]) / 2.0**rounds
    rank = 1
    while 2 * rank < rounds and 1 - 2 * tails[rank] >= CONFIDENCE:
        rank += 1
    return rank - 1, rounds - rank, float(max(0.0, 1 - 2 * tails[rank - 1]))


def parse_rounds(column: pd.Series) -> np.ndarray:
    """``"1.0;1.1"`` strings to an array [rows, most rounds] of ms, padded with NaN."""
    text = column.fillna("").astype(str)
    counts = np.array([row.count(";") + 1 if row else 0 for row in text], dtype=int)
    matrix = np.full((len(text), max(counts.max(initial=0), 1)), np.nan)
    joined = ";".join(text[counts > 0])
    if joined:
        matrix[np.arange(matrix.shape[1]) < counts[:, None]] = np.fromstring(joined, sep=";")
    return matrix


def median_intervals(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Low and high end of the interval of each row's median, from its rounds, in ms."""
    found = _intervals(parse_rounds(frame["rounds_ms"]), frame.index)
    return found["low"].to_numpy(), found["high"].to_numpy()


def noise_floor(frame: pd.DataFrame) -> pd.DataFrame:
    """Per phase: FLOOR_QUANTILE over cells of |median A/A ratio - 1| (``floor``), ``pairs``."""
    pairs = frame[gates.shown(frame) & frame["again_ms"].notna()]
    if pairs.empty:
        return pd.DataFrame({"floor": [], "pairs": []}, dtype=float)
    first, second = _same_width(parse_rounds(pairs["rounds_ms"]), parse_rounds(pairs["again_ms"]))
    deviation = pd.Series(np.abs(_median(first / second) - 1), index=pairs.index).dropna()
    grouped = deviation.groupby(pairs["phase"])
    floor = grouped.quantile(FLOOR_QUANTILE, interpolation="higher")
    return pd.DataFrame({"floor": floor, "pairs": grouped.size()})


def _speedups(usable: pd.DataFrame, series: Series, base: Series, floors: pd.Series):
    pairs = _paired(usable, series, base, ["together"])
    if pairs.empty:
        return pd.DataFrame(columns=COLUMNS, dtype=float)
    theirs = usable.loc[pairs["base_row"]]
    ours = parse_rounds(usable.loc[pairs.index, "rounds_ms"])
    base_rounds = parse_rounds(theirs["rounds_ms"])
    comparable = _rounds_of(ours) == _rounds_of(base_rounds)
    ours, base_rounds = _same_width(ours[comparable], base_rounds[comparable])
    ratios = _intervals(base_rounds / ours, pairs.index[comparable])
    ratios["floor"] = usable.loc[ratios.index, "phase"].map(floors).astype(float)
    ratios["verdict"] = _verdicts(ratios)
    ratios["base_ms"] = theirs["median_ms"].to_numpy()[comparable]
    return ratios[COLUMNS]


def _paired(frame: pd.DataFrame, series: Series, base: Series, further: list[str]) -> pd.DataFrame:
    differing = {column for column, _ in series.where}
    keys = [n for n in (*axes(frame), "implementation", "phase") if n not in differing]
    keys += further
    right = base.rows(frame)[keys].drop_duplicates(keys, keep="last")
    right = right.assign(base_row=right.index)
    left = series.rows(frame)[keys]
    joined = left.reset_index(names="row").merge(right, on=keys, how="inner")
    return joined.set_index("row")[["base_row"]]


def _rounds_of(matrix: np.ndarray) -> np.ndarray:
    return (~np.isnan(matrix)).sum(axis=1)


def _same_width(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    width = min(a.shape[1], b.shape[1])
    return a[:, :width], b[:, :width]


def _median(ratios: np.ndarray) -> np.ndarray:
    some = ~np.isnan(ratios).all(axis=1)
    medians = np.full(len(ratios), np.nan)
    medians[some] = np.nanmedian(ratios[some], axis=1)
    return medians


def _intervals(values: np.ndarray, index: pd.Index) -> pd.DataFrame:
    counts = _rounds_of(values)
    ordered = np.sort(values, axis=1)
    ranks = np.array([order_statistics(max(int(n), 1))[:2] for n in counts], dtype=int)
    ranks = ranks.reshape(-1, 2)
    rows = np.arange(len(values))
    return pd.DataFrame(
        {
            "ratio": _median(values),
            "low": ordered[rows, ranks[:, 0]],
            "high": ordered[rows, ranks[:, 1]],
            "rounds": counts,
        },
        index=index,
    )


def _verdicts(ratios: pd.DataFrame) -> np.ndarray:
    floor = ratios["floor"].fillna(0.0).clip(lower=LEAST_FLOOR)
    off = (ratios["ratio"] - 1).abs()
    widest = np.maximum((ratios["low"] - 1).abs(), (ratios["high"] - 1).abs())
    apart = ((ratios["low"] > 1) | (ratios["high"] < 1)) & (off > floor) & (ratios["rounds"] > 1)
    beyond = np.where(ratios["ratio"] > 1, FASTER, SLOWER)
    same = (widest <= floor) & (ratios["rounds"] > 1)
    return np.where(apart, beyond, np.where(same, SAME, UNRESOLVED))


def interval_sentence(rounds: int) -> str:
    """Which interval a number of rounds gives, and with what coverage."""
    low, high, coverage = order_statistics(rounds)
    if rounds < 2:
        return "with one round there is no interval, so that every comparison is unresolved"
    kind = "the range" if low == 0 else f"order statistics {low + 1} to {high + 1}"
    return f"{kind} of {rounds} rounds, {100 * coverage:.1f} % sure to cover the true median"
