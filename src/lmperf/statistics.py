"""Speed-ups: the estimator, its confidence interval, its p value and the verdict.

The estimate is a ratio of times, base / candidate: above 1, the candidate is faster.

*Timed in turn* (`paired`): the median of the ratios by round. Its interval uses order statistics:
of n ratios, the number below the true median is binomial(n, 1/2), so [x_(k), x_(n+1-k)] covers the
median with probability 1 - 2 P(B <= k-1) for any distribution (David and Nagaraja, Order
Statistics, 7.1). It excludes 1 exactly when the sign test rejects. Fewer than six rounds give no
95 % interval; then it is the range, with lower coverage.

*Timed apart* (`unpaired`): the ratio of the medians of two sets of rounds, with a percentile
bootstrap interval (BCa is undefined for a constant sample, which a quantised clock can give). Both
intervals only know the rounds of one run; since runs differ by more, callers also require a least
difference.

*False discovery*. With many cells, some intervals exclude 1 by chance, so the p values of a table
are adjusted together (Benjamini and Hochberg, 1995). They come from a t test on the logarithms of
the rounds. The sign test would not do: over six rounds its p value is at least 0.031, so no cell
could be significant unless five in eight cells of the table differed. A difference therefore needs
both: a significant adjusted p value, and the interval, which makes no assumption.

*Optional stopping*. Rounds are added until a verdict is decided (`decided`), so the intervals cover
less than stated. The effect is limited, not corrected: there are only four looks (after 6, 9, 14
and 20 rounds), each also requires a ratio beyond the noise floor, and p values are adjusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

CONFIDENCE = 0.95
FALSE_DISCOVERY = 0.05
FLOOR_QUANTILE = 0.95
LEAST_FLOOR = 0.01
# Largest floor within which two cases can be called the same, however noisy the case is.
MOST_FLOOR = 0.10
FASTER, SLOWER, SAME, UNRESOLVED = "faster", "slower", "same", "unresolved"
_RESAMPLES = 999

# Rounds of one row, or of many as [rows, rounds], padded with NaN.
Rounds = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Ratio:
    """A ratio base / candidate with its interval, its p value and its number of rounds.

    The fields are numbers, or arrays with one value for each row.
    """

    ratio: float | np.ndarray
    low: float | np.ndarray
    high: float | np.ndarray
    p: float | np.ndarray
    rounds: int | np.ndarray


@cache
def order_statistics(rounds: int) -> tuple[int, int, float]:
    """Zero-based ranks (low, high) of the interval of the median of n values, and its coverage."""
    tails = special.bdtr(np.arange(rounds), rounds, 0.5)
    rank = max(1, int(np.searchsorted(tails, (1 - CONFIDENCE) / 2, side="right")))
    return rank - 1, rounds - rank, float(max(0.0, 1 - 2 * tails[rank - 1]))


def quantile(values: Sequence[float], fraction: float) -> float:
    """Quantile by linear interpolation between order statistics."""
    return float(np.quantile(values, fraction))


def median_interval(values: Rounds) -> tuple[float, float] | tuple[np.ndarray, np.ndarray]:
    """Low and high end of the interval of the median, of one row or of each row."""
    matrix = np.atleast_2d(np.asarray(values, dtype=float))
    counts = _counts(matrix)
    ranks = np.array([order_statistics(max(int(n), 1))[:2] for n in counts], dtype=int)
    ordered = np.sort(matrix, axis=1)  # NaN last
    ends = np.take_along_axis(ordered, ranks.reshape(-1, 2), axis=1)
    return _like(values, ends[:, 0]), _like(values, ends[:, 1])


def paired(base: Rounds, candidate: Rounds) -> Ratio:
    """The ratio of two cases that were timed in turn, from their medians by round.

    Raises:
        ValueError: they differ in their number of rounds.
    """
    over = np.atleast_2d(np.asarray(base, float)) / np.atleast_2d(np.asarray(candidate, float))
    middle, (low, high) = medians(over), median_interval(over)
    fields = middle, low, high, _p_paired(np.log(over)), _counts(over)
    return Ratio(*(_like(base, field) for field in fields))


def unpaired(base: Rounds, candidate: Rounds, seed: int = 0) -> Ratio:
    """The ratio of two cases that were timed apart, from their medians by round.

    `rounds` of the result is the smaller of the two numbers of rounds; if it is below two, the
    interval is NaN.
    """
    one, two = (np.atleast_2d(np.asarray(side, float)) for side in (base, candidate))
    counts = np.minimum(_counts(one), _counts(two))
    low, high = _bootstrapped(one, two, seed)
    p = _p_unpaired(np.log(one), np.log(two))
    fields = medians(one) / medians(two), low, high, p, counts
    return Ratio(*(_like(base, field) for field in fields))


def medians(matrix: np.ndarray) -> np.ndarray:
    """The median of each row of a matrix padded with NaN; NaN for an empty row."""
    some = ~np.isnan(matrix).all(axis=1)
    found = np.full(len(matrix), np.nan)
    found[some] = np.nanmedian(matrix[some], axis=1)
    return found


def noise_floor(again: np.ndarray) -> float:
    """How far apart two slices of the same case are (A/A), at the quantile FLOOR_QUANTILE.

    again: ratio of the two slices for each cell; NaN if a cell has none.
    """
    deviations = _from_one(again[~np.isnan(again)])
    if not len(deviations):
        return float("nan")
    return float(np.quantile(deviations, FLOOR_QUANTILE, method="higher"))


def adjusted(ps: Rounds) -> np.ndarray:
    """p values adjusted together (Benjamini-Hochberg); NaN stays NaN."""
    found = np.array(ps, dtype=float)
    some = ~np.isnan(found)
    if some.any():
        found[some] = _scipy_stats().false_discovery_control(found[some])
    return found


def verdict(ratio: Ratio, floor: float | np.ndarray, significant: bool | np.ndarray = True):
    """FASTER, SLOWER, SAME or UNRESOLVED; an array of them for a ratio of arrays.

    floor: the noise floor; NaN if unknown. It is at least LEAST_FLOOR, and for SAME at most
    MOST_FLOOR.
    significant: whether the adjusted p value is at most FALSE_DISCOVERY.
    """
    floor = np.fmax(floor, LEAST_FLOOR)
    several = np.asarray(ratio.rounds) > 1
    widest = np.maximum(_from_one(ratio.low), _from_one(ratio.high))
    apart = np.greater(ratio.low, 1) | np.less(ratio.high, 1)
    apart = apart & (_from_one(ratio.ratio) > floor) & significant & several
    same = (widest <= np.minimum(floor, MOST_FLOOR)) & several
    beyond = np.where(np.greater(ratio.ratio, 1), FASTER, SLOWER)
    found = np.where(same, SAME, np.where(apart, beyond, UNRESOLVED))
    return found.astype(object) if found.ndim else str(found)


def decided(base: Sequence[float], candidate: Sequence[float], floor: float = LEAST_FLOOR) -> bool:
    """Whether a comparison timed in turn needs no further rounds.

    That is so if its interval excludes 1 and the ratio lies beyond the floor, if the interval lies
    within the floor, or if its half width is below LEAST_FLOOR; never with fewer rounds than an
    interval of CONFIDENCE needs. It is called for all pairs of a group between rounds, so it must
    be fast.
    """
    ratios = sorted(a / b for a, b in zip(base, candidate, strict=True))
    rounds = len(ratios)
    if rounds < 2:
        return False
    first, last, coverage = order_statistics(rounds)
    if coverage < CONFIDENCE:
        return False
    low, high = ratios[first], ratios[last]
    floor = floor if floor > LEAST_FLOOR else LEAST_FLOOR  # also for NaN
    if high - low < 2 * LEAST_FLOOR or (1 / low - 1 <= floor and high - 1 <= floor):
        return True
    middle = (ratios[(rounds - 1) // 2] + ratios[rounds // 2]) / 2
    return (low > 1 or high < 1) and max(middle, 1 / middle) - 1 > floor


def _scipy_stats():
    """scipy.stats, imported on first use: it takes 0.75 s, and measuring does not need it."""
    from scipy import stats

    return stats


def _from_one(ratio: float | np.ndarray) -> np.ndarray:
    """Distance of ratios from 1; a ratio and its inverse have the same."""
    with np.errstate(divide="ignore"):
        return np.maximum(ratio, np.divide(1, ratio)) - 1


def _counts(matrix: np.ndarray) -> np.ndarray:
    return (~np.isnan(matrix)).sum(axis=1)


def _like(given: Rounds, field: np.ndarray):
    return field if np.ndim(given) == 2 else field[0].item()


def _moments(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and count of each row; the deviation of one value is NaN."""
    counts = _counts(logs)
    mean = np.nansum(logs, axis=1) / np.maximum(counts, 1)
    squares = np.nansum((logs - mean[:, None]) ** 2, axis=1)
    deviation = np.sqrt(squares / np.maximum(counts - 1, 1))
    return mean, np.where(counts > 1, deviation, np.nan), counts


def _p_paired(logs: np.ndarray) -> np.ndarray:
    mean, deviation, counts = _moments(logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean * np.sqrt(counts) / deviation
    return _certain(2 * special.stdtr(counts - 1, -np.abs(t)), mean, deviation)


def _p_unpaired(base: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    one, two = _moments(base), _moments(candidate)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = _scipy_stats().ttest_ind_from_stats(*one, *two, equal_var=False).pvalue
    return _certain(p, one[0] - two[0], one[1] + two[1])


def _certain(p: np.ndarray, difference: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """p, or its limit where the deviation is zero: 1 without a difference, 0 with one."""
    return np.where(deviation == 0, np.where(difference == 0, 1.0, 0.0), p)


def _bootstrapped(base: np.ndarray, candidate: np.ndarray, seed: int):
    """Bootstrap interval of the ratio of medians of each row."""
    low, high = np.full((2, len(base)), np.nan)
    counts = np.stack([_counts(base), _counts(candidate)], axis=1)
    for some in np.unique(counts[counts.min(axis=1) > 1], axis=0):
        rows = (counts == some).all(axis=1)
        # Sorting moves the padding to the end.
        sides = [np.sort(s[rows])[:, :n] for s, n in zip((base, candidate), some, strict=True)]
        found = (
            _scipy_stats()
            .bootstrap(
                sides,
                lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis),
                axis=1,
                n_resamples=_RESAMPLES,
                batch=64,
                confidence_level=CONFIDENCE,
                method="percentile",
                random_state=np.random.default_rng(seed),
            )
            .confidence_interval
        )
        low[rows], high[rows] = found.low, found.high
    return low, high
