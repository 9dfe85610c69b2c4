"""Speed-ups: estimates them with a confidence interval, a p value and a verdict.

A speed-up is the ratio of two times, base / candidate: above 1, the candidate is faster. The times
are medians by round; in one round every case runs a short series of calls (a slice).

*Timed in turn* (`paired`): the estimate is the median of the ratios of each round. The interval
uses order statistics: of n ratios, the number below the true median is binomial(n, 1/2), so
[x_(k), x_(n+1-k)] covers the median with probability 1 - 2 P(B <= k-1) for any distribution (David
and Nagaraja, Order Statistics, 7.1). The interval excludes 1 exactly when the sign test rejects.
With fewer than six rounds there is no 95 % interval; the range is used, with lower coverage.

*Timed apart* (`unpaired`): the estimate is the ratio of the medians of two sets of rounds, with a
percentile bootstrap interval (BCa is undefined for a constant sample, which a quantised clock can
give).

*Noise floor*. Paired and unpaired intervals cover the variation between the rounds of one process.
Two processes of the same code differ by more, so a difference must also lie beyond the noise floor:
how far apart two processes of the same code are in 95 % of cells (`noise_floor`).

*False discovery*. With many cells, some intervals exclude 1 by chance, so the p values of a table
are adjusted together (Benjamini and Hochberg, 1995). The p values come from a t test on the
logarithms of the rounds. The sign test is not used: over six rounds its p value is at least 0.031,
so no cell could be significant unless five in eight cells of the table differed. A difference must
pass two tests: its adjusted p value is significant, and its interval, which assumes no
distribution, excludes 1.

*Optional stopping*. Rounds are added until a comparison is decided (`decided`), so the intervals
cover less than stated. The effect is limited, not corrected: comparisons are tested only four times
(after 6, 9, 14 and 20 rounds), each test also requires a ratio beyond the noise floor, and p values
are adjusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

CONFIDENCE = 0.95
FALSE_DISCOVERY = 0.05
FLOOR_QUANTILE = 0.95
LEAST_FLOOR = 0.01
# The noise floor where too few pairs of processes tell it. From a floor of this size on, "the same"
# would say nothing, so it needs an interval within LEAST_FLOOR of 1.
UNKNOWN_FLOOR = 0.10
# With fewer pairs of processes, their FLOOR_QUANTILE quantile says little.
LEAST_PAIRS = 10
FASTER, SLOWER, SAME, UNRESOLVED = "faster", "slower", "same", "unresolved"
_RESAMPLES = 999
_BATCH = 64
# Bounds the memory of a bootstrap: 8 bytes for each row and resample, a few times over.
_ROWS_AT_ONCE = 2048

# ms by round of one row, or of many rows as [rows, rounds], padded with NaN.
Rounds = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Ratio:
    """A speed-up (time of base / time of candidate) with its confidence interval and p value.

    The fields are numbers, or arrays with one value for each row.

    Attributes:
        low, high: ends of the confidence interval.
        p: p value of a t test for no difference, not adjusted.
        rounds: number of rounds that the ratio is computed from.
    """

    ratio: float | np.ndarray
    low: float | np.ndarray
    high: float | np.ndarray
    p: float | np.ndarray
    rounds: int | np.ndarray


@cache
def order_statistics(rounds: int) -> tuple[int, int, float]:
    """Return the zero-based ranks of a median's interval over n values, and its coverage.

    The ranks are those of the low and the high end among the n sorted values.
    """
    from scipy import special  # slow to import, and every command imports this module

    tails = special.bdtr(np.arange(rounds), rounds, 0.5)
    rank = max(1, int(np.searchsorted(tails, (1 - CONFIDENCE) / 2, side="right")))
    return rank - 1, rounds - rank, float(max(0.0, 1 - 2 * tails[rank - 1]))


def median_interval(values: Rounds) -> tuple[float, float] | tuple[np.ndarray, np.ndarray]:
    """Return the low and high end of the confidence interval of the median, of each row."""
    matrix = np.atleast_2d(np.asarray(values, dtype=float))
    counts = _counts(matrix)
    ranks = np.array([order_statistics(max(int(n), 1))[:2] for n in counts], dtype=int)
    ordered = np.sort(matrix, axis=1)  # NaN last
    ends = np.take_along_axis(ordered, ranks.reshape(-1, 2), axis=1)
    return _like(values, ends[:, 0]), _like(values, ends[:, 1])


def paired(base: Rounds, candidate: Rounds) -> Ratio:
    """Return the speed-up of two cases that were timed in turn, from their medians by round.

    Raises:
        ValueError: the two cases have different numbers of rounds.
    """
    over = np.atleast_2d(np.asarray(base, float)) / np.atleast_2d(np.asarray(candidate, float))
    middle, (low, high) = medians(over), median_interval(over)
    fields = middle, low, high, _p_paired(np.log(over)), _counts(over)
    return Ratio(*(_like(base, field) for field in fields))


def unpaired(base: Rounds, candidate: Rounds) -> Ratio:
    """Return the speed-up of two cases that were timed apart, from their medians by round.

    The field `rounds` is the smaller number of rounds of the two cases; below two, the interval is
    NaN.
    """
    sides = [np.atleast_2d(np.asarray(side, float)) for side in (base, candidate)]
    counts = np.minimum(*map(_counts, sides))
    low, high = _bootstrapped(*sides)
    p = _p_unpaired(*map(np.log, sides))
    fields = np.divide(*map(medians, sides)), low, high, p, counts
    return Ratio(*(_like(base, field) for field in fields))


def medians(matrix: np.ndarray) -> np.ndarray:
    """Return the median of each row of a matrix padded with NaN; NaN for an empty row."""
    has_values = ~np.isnan(matrix).all(axis=1)
    middles = np.full(len(matrix), np.nan)
    middles[has_values] = np.nanmedian(matrix[has_values], axis=1)
    return middles


def noise_floor(again: np.ndarray) -> float:
    """Return the noise floor: how far apart two processes of the same code are, as a fraction.

    It is the FLOOR_QUANTILE quantile of how far their ratios are from 1.

    Args:
        again: for each cell the ratio of the times of two processes; NaN for a cell without.

    Returns:
        The noise floor; NaN if no cell has a ratio.
    """
    deviations = _from_one(np.asarray(again, float))
    deviations = deviations[~np.isnan(deviations)]
    if not len(deviations):
        return float("nan")
    return float(np.quantile(deviations, FLOOR_QUANTILE, method="higher"))


def adjusted(ps: Rounds) -> np.ndarray:
    """Return p values adjusted together (Benjamini-Hochberg); NaN stays NaN."""
    # scipy.stats, which does the same, takes 1.1 s to import.
    result = np.array(ps, dtype=float)
    number = np.count_nonzero(~np.isnan(result))
    greatest_first = np.argsort(result)[:number][::-1]  # NaN is last
    scaled = result[greatest_first] * (number / np.arange(number, 0, -1))
    result[greatest_first] = np.minimum.accumulate(np.minimum(scaled, 1))
    return result


def verdict(
    ratio: Ratio,
    floor: float | np.ndarray,
    significant: bool | np.ndarray = True,
    disturbed: bool | np.ndarray = False,
):
    """Return FASTER, SLOWER, SAME or UNRESOLVED; an array of verdicts for a ratio of arrays.

    Args:
        ratio: the speed-up with its interval.
        floor: the noise floor; NaN for none. At least LEAST_FLOOR is used; SAME does not use a
            floor of UNKNOWN_FLOOR or more.
        significant: whether the adjusted p value is at most FALSE_DISCOVERY.
        disturbed: whether a mark says that one of the two times may not hold: UNRESOLVED.
    """
    floor = np.fmax(floor, LEAST_FLOOR)
    several = np.asarray(ratio.rounds) > 1
    widest = np.maximum(_from_one(ratio.low), _from_one(ratio.high))
    apart = np.greater(ratio.low, 1) | np.less(ratio.high, 1)
    apart = apart & (_from_one(ratio.ratio) > floor) & significant & several
    same = (widest <= np.where(floor < UNKNOWN_FLOOR, floor, LEAST_FLOOR)) & several
    beyond = np.where(np.greater(ratio.ratio, 1), FASTER, SLOWER)
    verdicts = np.where(same, SAME, np.where(apart, beyond, UNRESOLVED))
    verdicts = np.where(disturbed, UNRESOLVED, verdicts)
    return verdicts.astype(object) if verdicts.ndim else str(verdicts)


def decided(base: Sequence[float], candidate: Sequence[float]) -> bool:
    """Return whether the comparison of two cases timed in turn needs no further rounds.

    It is decided if its interval excludes 1 and its ratio lies beyond LEAST_FLOOR, or if half the
    width of its interval is below it. It is never decided with fewer rounds than an interval of
    confidence CONFIDENCE needs. This function is called for all pairs of a group between rounds, so
    it must be fast.
    """
    ratios = sorted(a / b for a, b in zip(base, candidate, strict=True))
    rounds = len(ratios)
    if rounds < 2:
        return False
    first, last, coverage = order_statistics(rounds)
    if coverage < CONFIDENCE:
        return False
    low, high = ratios[first], ratios[last]
    if high - low < 2 * LEAST_FLOOR:
        return True
    middle = (ratios[(rounds - 1) // 2] + ratios[rounds // 2]) / 2
    return (low > 1 or high < 1) and max(middle, 1 / middle) - 1 > LEAST_FLOOR


def _from_one(ratio: float | np.ndarray) -> np.ndarray:
    """Return the distance of ratios from 1; a ratio and its inverse have the same distance."""
    with np.errstate(divide="ignore"):
        return np.maximum(ratio, np.divide(1, ratio)) - 1


def _counts(matrix: np.ndarray) -> np.ndarray:
    return (~np.isnan(matrix)).sum(axis=1)


def _like(given: Rounds, field: np.ndarray):
    return field if np.ndim(given) == 2 else field[0].item()


def _moments(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, standard deviation (NaN for a single value) and count of each row."""
    counts = _counts(logs)
    mean = np.nansum(logs, axis=1) / np.maximum(counts, 1)
    squares = np.nansum((logs - mean[:, None]) ** 2, axis=1)
    deviation = np.sqrt(squares / np.maximum(counts - 1, 1))
    return mean, np.where(counts > 1, deviation, np.nan), counts


def _p_paired(logs: np.ndarray) -> np.ndarray:
    from scipy import special

    mean, deviation, counts = _moments(logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean * np.sqrt(counts) / deviation
    return _certain(2 * special.stdtr(counts - 1, -np.abs(t)), mean, deviation)


def _p_unpaired(base: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Welch's t test; as `adjusted`, without scipy.stats."""
    from scipy import special

    (mean, deviation, n), (mean_2, deviation_2, n_2) = _moments(base), _moments(candidate)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_mean, of_mean_2 = deviation**2 / n, deviation_2**2 / n_2
        freedom = (of_mean + of_mean_2) ** 2
        freedom /= of_mean**2 / (n - 1) + of_mean_2**2 / (n_2 - 1)
        t = (mean - mean_2) / np.sqrt(of_mean + of_mean_2)
    p = 2 * special.stdtr(freedom, -np.abs(t))
    return _certain(p, mean - mean_2, deviation + deviation_2)


def _certain(p: np.ndarray, difference: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Replace p where the standard deviation is 0: by 1 without a difference, else by 0."""
    return np.where(deviation == 0, np.where(difference == 0, 1.0, 0.0), p)


def _bootstrapped(base: np.ndarray, candidate: np.ndarray):
    """Return the ends of the percentile bootstrap interval of the ratio of medians, for each row.

    All rows of as many rounds share their resamples. So the median of a resample is, in every
    sorted row, the mean of the values in two places: `scipy.stats.bootstrap` gives the same ends,
    row by row, in sixty times the time (4 s for the rows of two GPUs that `lmperf diff` compares).
    """
    low, high = np.full((2, len(base)), np.nan)
    counts = np.stack([_counts(base), _counts(candidate)], axis=1)
    tail = (1 - CONFIDENCE) / 2
    ends = 100 * tail, 100 * (1 - tail)
    for pair in np.unique(counts[counts.min(axis=1) > 1], axis=0):
        rows = np.flatnonzero((counts == pair).all(axis=1))
        places = _places_of_medians(pair)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[first : first + _ROWS_AT_ONCE]
            # Sorting moves the padding to the end.
            middles, middles_2 = (
                (ordered[:, lower] + ordered[:, upper]) / 2
                for side, (lower, upper) in zip((base, candidate), places, strict=True)
                for ordered in [np.sort(side[part])]
            )
            low[part], high[part] = np.percentile(middles / middles_2, ends, axis=1)
    return low, high


def _places_of_medians(counts: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the places of the two middle values of each resample, for each number of values.

    The draws are those of `scipy.stats.bootstrap` with batches of `_BATCH` resamples.
    """
    random, drawn = np.random.default_rng(0), [[] for _ in counts]
    for first in range(0, _RESAMPLES, _BATCH):
        for parts, count in zip(drawn, counts, strict=True):
            parts.append(random.integers(0, count, (min(_BATCH, _RESAMPLES - first), count)))
    ordered = (np.sort(np.concatenate(parts), axis=1) for parts in drawn)
    return [(o[:, (n - 1) // 2], o[:, n // 2]) for o, n in zip(ordered, counts, strict=True)]
