"""Speed-ups as intervals: per-round ratios of rows that were timed in turn.

Two rows may be compared only if they share ``together``, the pass in which they were timed round
after round. The speed-up is the median of the per-round ratios (reference / candidate, above 1 is
faster) with the exact interval of the median by order statistics: the number of the n ratios that
lie below the true median is binomial(n, 1/2), so [x_(k), x_(n+1-k)] covers it with
1 - 2 P(B <= k-1), whatever the distribution (David and Nagaraja, Order Statistics, 7.1). With
fewer than six rounds no such interval reaches 95 %: it is the range, and its true coverage is
stated.

The noise floor comes from pairs of one implementation with itself in the same rounds (A/A).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.reporting.numbers import EMPTY, dtype_words, implementation_words

CONFIDENCE = 0.95
FLOOR_QUANTILE = 0.95
WITHHELD = "withheld"
NOT_IN_TURN = "not timed in turn"
NO_DIFFERENCE = "no difference"


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


def noise_floor(frame: pd.DataFrame) -> pd.DataFrame:
    """Per phase: FLOOR_QUANTILE over cells of |median A/A ratio - 1| (``floor``), ``pairs``."""
    pairs = frame[gates.shown(frame) & _present(frame, "again_ms")]
    if pairs.empty:
        return pd.DataFrame({"floor": [], "pairs": []}, dtype=float)
    first, second = _same_width(parse_rounds(pairs["rounds_ms"]), parse_rounds(pairs["again_ms"]))
    deviation = pd.Series(np.abs(_median(first / second) - 1), index=pairs.index).dropna()
    grouped = deviation.groupby(pairs["phase"])
    floor = grouped.quantile(FLOOR_QUANTILE, interpolation="higher")
    return pd.DataFrame({"floor": floor, "pairs": grouped.size()})


def speedups(
    frame: pd.DataFrame, column: str, reference: str, floors: pd.Series | None = None
) -> pd.DataFrame:
    """Speed-ups of rows over the row that has ``reference`` in ``column`` and agrees in all else.

    Args:
        frame: rows of one benchmark.
        column: ``implementation`` or an axis such as ``dtype``.
        reference: the value of ``column`` to compare with.
        floors: noise floor by phase; of ``frame`` itself unless given, so a part of a benchmark
            needs those of the whole.

    Returns:
        One row per comparable row of ``frame`` (same index): ratio, low, high, coverage, rounds,
        floor (NaN where no A/A pair exists) and verdict (faster, slower, no difference).
    """
    usable = frame[gates.shown(frame) & _present(frame, "rounds_ms") & _present(frame, "together")]
    pairs = _paired(usable, column, reference, ["together"])
    if pairs.empty:
        return pd.DataFrame(columns=_COLUMNS, dtype=float)
    ours = parse_rounds(usable.loc[pairs.index, "rounds_ms"])
    theirs = parse_rounds(usable.loc[pairs["reference_row"], "rounds_ms"])
    comparable = _rounds_of(ours) == _rounds_of(theirs)
    ours, theirs = _same_width(ours[comparable], theirs[comparable])
    ratios = _intervals(theirs / ours, pairs.index[comparable])
    floors = noise_floor(frame)["floor"] if floors is None else floors
    ratios["floor"] = frame.loc[ratios.index, "phase"].map(floors).astype(float)
    ratios["verdict"] = _verdicts(ratios)
    return ratios


@dataclass(frozen=True)
class Speedups:
    """The speed-ups of a whole benchmark over one reference, and the same in words."""

    ratios: pd.DataFrame
    words: pd.Series

    def within(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The ratios of these rows of the benchmark."""
        return self.ratios.loc[self.ratios.index.intersection(rows.index)]


def compared(evidence: MachineEvidence, stem: str, column: str, reference: str) -> Speedups:
    """``speedups`` and ``speedup_cells`` of the evidence of a stem, computed once."""

    def make() -> Speedups:
        frame = evidence.frame(stem)
        ratios = speedups(frame, column, reference)
        return Speedups(ratios, speedup_cells(frame, column, reference, ratios))

    return evidence.once(("speedups", stem, column, reference), make)


def compared_rows(
    evidence: MachineEvidence, stem: str, column: str, reference: str
) -> pd.DataFrame:
    """The rows of a stem that have a speed-up, with the columns of ``speedups``."""
    ratios = compared(evidence, stem, column, reference).ratios
    return evidence.frame(stem).loc[ratios.index].join(ratios)


_COLUMNS = ["ratio", "low", "high", "coverage", "rounds", "floor", "verdict"]


def _present(frame: pd.DataFrame, column: str) -> pd.Series:
    return frame[column].notna() if column in frame.columns else pd.Series(False, frame.index)


def _paired(frame: pd.DataFrame, column: str, reference: str, further: list[str]) -> pd.DataFrame:
    keys = [name for name in (*axes(frame), "implementation", "phase") if name != column]
    keys += further
    right = frame.loc[frame[column] == reference, keys].drop_duplicates(keys, keep="last")
    right = right.assign(reference_row=right.index)
    left = frame.loc[frame[column] != reference, keys]
    joined = left.reset_index(names="row").merge(right, on=keys, how="inner")
    return joined.set_index("row")[["reference_row"]]


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


def _intervals(ratios: np.ndarray, index: pd.Index) -> pd.DataFrame:
    counts = _rounds_of(ratios)
    ordered = np.sort(ratios, axis=1)
    ranks = np.array([order_statistics(int(n))[:2] for n in counts], dtype=int).reshape(-1, 2)
    coverage = [order_statistics(int(n))[2] for n in counts]
    rows = np.arange(len(ratios))
    return pd.DataFrame(
        {
            "ratio": _median(ratios),
            "low": ordered[rows, ranks[:, 0]],
            "high": ordered[rows, ranks[:, 1]],
            "coverage": coverage,
            "rounds": counts,
        },
        index=index,
    )


def _verdicts(ratios: pd.DataFrame) -> np.ndarray:
    contains_one = (ratios["low"] <= 1) & (ratios["high"] >= 1)
    within_floor = (ratios["ratio"] - 1).abs() <= ratios["floor"].fillna(0.0)
    same = contains_one | within_floor | (ratios["rounds"] < 2)
    faster = np.where(ratios["ratio"] > 1, "faster", "slower")
    return np.where(same, NO_DIFFERENCE, faster)


def comparison_name(column: str, value: str, reference: str) -> str:
    """What a ratio compares, never bare: ``bf16 autocast vs float32 IEEE``."""
    words = dtype_words if column == "dtype" else implementation_words
    return f"{words(value)} vs {words(reference)}"


def speedup_cells(
    frame: pd.DataFrame, column: str, reference: str, ratios: pd.DataFrame
) -> pd.Series:
    """The speed-up of each row in words; a dash where there is nothing to compare.

    ``ratios`` are the ``speedups`` of the same frame, column and reference.
    """
    words = pd.Series(EMPTY, index=frame.index, dtype=object)
    both = _paired(frame, column, reference, [])
    ok, red = frame["status"] == "ok", gates.red(frame)
    here, there = both.index, both["reference_row"].to_numpy()
    words[here[ok.loc[here].to_numpy() & ok.loc[there].to_numpy()]] = NOT_IN_TURN
    words[here[red.loc[here].to_numpy() | red.loc[there].to_numpy()]] = WITHHELD
    words[ratios.index] = [_speedup_text(*row) for row in ratios[_SHOWN].itertuples(index=False)]
    return words


_SHOWN = ["ratio", "low", "high", "verdict"]


def _speedup_text(ratio: float, low: float, high: float, verdict: str) -> str:
    if verdict == NO_DIFFERENCE:
        return NO_DIFFERENCE
    return f"{ratio:.2f}× ({low:.2f}–{high:.2f})"


def interval_words(ratios: pd.DataFrame) -> str:
    """Which interval the speed-ups carry and with what coverage, by number of rounds."""
    if ratios.empty:
        return ""
    return "; ".join(interval_sentence(int(n)) for n in sorted(ratios["rounds"].unique()))


def interval_sentence(rounds: int) -> str:
    """Which interval a number of rounds gives, and with what coverage."""
    low, high, coverage = order_statistics(rounds)
    if rounds < 2:
        return "with one round there is no interval, so no difference is claimed"
    kind = "the range" if low == 0 else f"order statistics {low + 1} to {high + 1}"
    return f"{kind} of {rounds} rounds, covering the true median with {100 * coverage:.1f} %"
