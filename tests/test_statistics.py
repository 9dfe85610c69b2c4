"""Tests of estimators, intervals, p values and verdicts on samples with a known true ratio."""

import itertools

import numpy as np
import pytest

from lmperf.statistics import (
    CONFIDENCE,
    FALSE_DISCOVERY,
    FASTER,
    SAME,
    SLOWER,
    UNRESOLVED,
    Ratio,
    adjusted,
    decided,
    median_interval,
    noise_floor,
    order_statistics,
    paired,
    unpaired,
    verdict,
)

CELLS = 1000
SPREAD = 0.02


def draws(rounds, factor=1.0, cells=CELLS):
    """Draw two arrays [cells, rounds] of noisy times whose true ratio is `factor`."""
    generator = np.random.default_rng(0)
    noise = np.exp(SPREAD * generator.standard_normal((2, cells, rounds)))
    return factor * noise[0], noise[1]


def verdicts(ratio):
    return verdict(ratio, np.nan, adjusted(ratio.p) <= FALSE_DISCOVERY)


@pytest.mark.parametrize("rounds", range(1, 14))
def test_order_statistics_returns_exact_median_coverage(rounds):
    low, high, coverage = order_statistics(rounds)
    assert 0 <= low <= high < rounds
    sides = itertools.product((0, 1), repeat=rounds)
    covered = sum(1 for s in sides if low < sum(s) <= high)
    assert coverage == pytest.approx(covered / 2**rounds)
    if rounds >= 6:
        assert coverage >= CONFIDENCE
    else:
        assert (low, high) == (0, rounds - 1) and coverage < CONFIDENCE


@pytest.mark.parametrize("rounds", (6, 12, 24))
@pytest.mark.parametrize("estimate", (paired, unpaired))
def test_intervals_have_nominal_coverage(estimate, rounds):
    found = estimate(*draws(rounds, 1.3))
    covered = ((found.low <= 1.3) & (found.high >= 1.3)).mean()
    assert covered >= CONFIDENCE - 0.02
    assert abs(found.ratio.mean() - 1.3) < 0.01


@pytest.mark.parametrize("estimate", (paired, unpaired))
def test_p_values_are_calibrated(estimate):
    p = estimate(*draws(6)).p
    assert abs((p < 0.05).mean() - 0.05) < 0.02


@pytest.mark.parametrize("estimate", (paired, unpaired))
def test_equal_samples_rarely_get_false_verdicts(estimate):
    found = verdicts(estimate(*draws(6)))
    assert np.isin(found, (FASTER, SLOWER)).mean() <= 0.01


@pytest.mark.parametrize("estimate", (paired, unpaired))
def test_verdict_finds_difference_in_all_cells_or_in_one(estimate):
    slow = verdicts(estimate(*draws(6, 0.9)))
    assert (slow == SLOWER).mean() >= 0.95
    base, candidate = draws(6)
    base[17] *= 1.5
    assert verdicts(estimate(base, candidate))[17] == FASTER


def test_rows_of_nan_padded_matrix_equal_single_estimates():
    base, candidate = draws(12, 1.1, cells=3)
    base[1, 6:] = candidate[1, 6:] = np.nan
    for estimate in (paired, unpaired):
        all_rows = estimate(base, candidate)
        alone = estimate(base[1, :6].tolist(), candidate[1, :6].tolist())
        assert alone.rounds == all_rows.rounds[1] == 6
        for name in ("ratio", "low", "high", "p"):
            assert getattr(alone, name) == pytest.approx(getattr(all_rows, name)[1])


def test_paired_ratio_cancels_drift():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert paired([2 * t for t in drift], drift) == Ratio(2.0, 2.0, 2.0, 0.0, 7)
    with pytest.raises(ValueError):
        paired([1.0] * 6, [1.0] * 7)


def test_constant_samples_have_p_value_0_or_1():
    assert unpaired([2.0] * 6, [1.0] * 6) == Ratio(2.0, 2.0, 2.0, 0.0, 6)
    assert unpaired([1.0] * 6, [1.0] * 6).p == paired([1.0] * 6, [1.0] * 6).p == 1.0


def test_ratio_of_one_round_is_unresolved():
    for one in (unpaired([2.0], [1.0]), unpaired([2.0], [1.0] * 6), paired([2.0], [1.0])):
        assert one.rounds == 1 and one.ratio == 2.0
        assert verdict(one, np.nan) == UNRESOLVED


@pytest.mark.parametrize(
    "low, middle, high, floor, significant, found",
    [
        (1.02, 1.03, 1.04, np.nan, True, FASTER),
        (1.02, 1.03, 1.04, np.nan, False, UNRESOLVED),
        (1.02, 1.03, 1.05, 0.04, True, UNRESOLVED),
        (1.02, 1.03, 1.04, 0.05, True, SAME),
        (0.93, 0.95, 0.97, 0.005, True, SLOWER),
        (0.992, 1.005, 1.008, 0.005, True, SAME),
        (0.93, 0.95, 0.97, 0.09, True, SAME),
        (0.70, 0.80, 0.90, 0.50, True, UNRESOLVED),  # a floor of UNKNOWN_FLOOR or more cannot tell
        (0.02, 0.03, 0.04, 9.00, True, SLOWER),  # 1/0.03 = 33 is far beyond the floor
        (0.02, 0.20, 0.40, 9.00, True, UNRESOLVED),
        (0.99, 1.02, 1.05, np.nan, True, UNRESOLVED),
    ],
)
def test_verdict_follows_interval_floor_and_significance(
    low, middle, high, floor, significant, found
):
    assert verdict(Ratio(middle, low, high, 0.01, 6), floor, significant) == found


def test_adjusted_p_values_keep_nan_and_accept_empty_input():
    assert adjusted([]).size == 0
    assert np.isnan(adjusted([np.nan])).all()
    found = adjusted([0.01, np.nan, 0.04])
    assert found[0] == pytest.approx(0.02) and np.isnan(found[1]) and found[2] == 0.04


@pytest.mark.slow
def test_p_values_are_those_of_scipy():
    from scipy import stats  # slow to import

    random = np.random.default_rng(5)
    one, two = np.log(random.lognormal(0, 0.1, (2, 40, 9)))
    one[::3, 6:], two[::2, 7:] = np.nan, np.nan
    expected = stats.ttest_ind(one, two, axis=1, equal_var=False, nan_policy="omit").pvalue
    found = unpaired(np.exp(one), np.exp(two)).p
    assert found == pytest.approx(expected)
    assert adjusted(found) == pytest.approx(stats.false_discovery_control(expected))


def test_decided_needs_interval_outside_floor_or_narrow():
    ones = [1.0] * 6
    assert decided([1.10, 1.12, 1.11, 1.14, 1.13, 1.15], ones), "beyond the floor, without one"
    assert not decided([0.96, 1.12, 1.11, 1.14, 1.13, 1.15], ones), "one is inside"
    assert decided([0.995, 1.002, 1.009, 1.008, 1.004, 1.009], ones), "it is narrow"
    assert not decided([0.97, 1.02, 0.99, 1.01, 1.0, 1.03], ones)
    assert not decided([1.2] * 5, [1.0] * 5), "five rounds have no interval of 95 %"


def test_median_interval_uses_order_statistics():
    assert median_interval([6, 5, 4, 3, 2, 1]) == (1, 6)
    assert median_interval(list(range(9))) == (1, 7)
    low, high = median_interval(np.array([[1.0, 2.0, np.nan], [3.0, 1.0, 2.0]]))
    assert low.tolist() == [1, 1] and high.tolist() == [2, 3]


def test_noise_floor_is_high_quantile_of_a_a_ratios():
    again = 1 + np.arange(100) / 1000
    assert 0.094 <= noise_floor(again) <= 0.096
    assert np.isnan(noise_floor(np.array([np.nan])))
