"""Speed-ups: only between rows timed in turn, as intervals, held against the noise."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.speedup import (
    NOT_IN_TURN,
    SAME,
    UNRESOLVED,
    WITHHELD,
    Series,
    interval_sentence,
    noise_floor,
    order_statistics,
    speedup_cells,
    speedups,
)


def row(implementation, rounds, together="p1", dtype="float32", again=None, **other):
    return {
        "seq_len": 128,
        "dtype": dtype,
        "implementation": implementation,
        "phase": "forward",
        "status": "ok",
        "rounds_ms": ";".join(map(str, rounds)),
        "again_ms": None if again is None else ";".join(map(str, again)),
        "together": together,
        "max_error": 1e-4,
        "error_bound": 1e-3,
        **other,
    }


def of(*rows, ours="compiled", base="eager", **where):
    """The speed-ups, and the same in words, of one implementation over another."""
    evidence = MachineEvidence("m", frames={"topic": pd.DataFrame(rows)})
    series = (
        Series.of(implementation=ours, **where),
        Series.of(implementation=base, **{name: "float32" for name in where}),
    )
    ratios = speedups(evidence, "topic", *series)
    return ratios, speedup_cells(evidence, "topic", *series).tolist()


def test_the_ratio_is_the_median_of_the_ratios_of_the_rounds():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    ratios, words = of(row("eager", [2 * t for t in drift]), row("compiled", drift))
    assert ratios["ratio"].tolist() == [2.0]
    assert (ratios["low"].iloc[0], ratios["high"].iloc[0]) == (2.0, 2.0)
    assert ratios["verdict"].tolist() == ["faster"]
    assert words == ["2.00x (2.00-2.00)"]


def test_rows_of_different_passes_have_no_ratio():
    ratios, words = of(row("eager", [2] * 7), row("compiled", [1] * 7, together="p2"))
    assert ratios.empty
    assert words == [NOT_IN_TURN]


def test_rows_without_a_pass_do_not_match_each_other():
    ratios, _ = of(row("eager", [2] * 7, together=None), row("compiled", [1] * 7, together=None))
    assert ratios.empty


def test_rows_of_different_dtypes_are_not_compared_as_implementations():
    ratios, words = of(row("eager", [2] * 7), row("compiled", [1] * 7, dtype="tf32"))
    assert ratios.empty and words == ["–"]


def test_between_dtypes_the_implementation_is_the_same():
    rows = row("eager", [2] * 7), row("eager", [1] * 7, dtype="tf32")
    ratios, _ = of(*rows, ours="eager", base="eager", dtype="tf32")
    assert ratios["ratio"].tolist() == [2.0]
    assert ratios["floor"].isna().all()


def test_another_implementation_in_other_numerics_has_a_ratio_too():
    rows = row("eager", [2] * 7), row("compiled", [1] * 7, dtype="tf32")
    assert of(*rows, dtype="tf32")[0]["ratio"].tolist() == [2.0]


@pytest.mark.parametrize("red", [{"status": "failed_check"}, {"max_error": 1.0}])
def test_a_red_gate_on_either_side_withholds_the_ratio(red):
    for bad in (0, 1):
        rows = [row("eager", [2] * 7), row("compiled", [1] * 7)]
        rows[bad].update(red)
        ratios, words = of(*rows)
        assert ratios.empty and words == [WITHHELD]


def test_rows_that_failed_have_no_ratio():
    ratios, words = of(row("eager", [2] * 7, status="oom"), row("compiled", [1] * 7))
    assert ratios.empty and words == ["–"]


def verdict(ratios, again=None):
    rows = row("eager", ratios, again=again), row("compiled", [1.0] * len(ratios))
    found, words = of(*rows)
    return found["verdict"].iloc[0], words[0]


def test_an_interval_too_wide_to_say_is_unresolved_and_keeps_its_value():
    assert verdict([0.96, 1.5, 1.6, 1.7, 1.65, 1.67]) == (
        UNRESOLVED,
        "1.62x (0.96-1.70) unresolved",
    )


def test_an_interval_within_the_floor_is_the_same():
    near = [0.995, 1.005, 0.997, 1.003, 1.0, 1.001]
    assert verdict(near)[0] == SAME and verdict(near)[1].endswith(" same")
    wide = [0.98, 1.02, 0.99, 1.01, 1.0, 1.0]
    assert verdict(wide)[0] == UNRESOLVED
    assert verdict(wide, again=[0.95] * 6)[0] == SAME, "the noise floor is 5 % now"


def test_an_interval_that_leaves_out_one_is_decided_only_beyond_the_floor():
    assert verdict([1.02] * 6)[0] == "faster" and verdict([0.97] * 6)[0] == "slower"
    assert verdict([1.005] * 6)[0] == SAME
    assert verdict([1.001, 1.002, 1.005, 1.006, 1.02, 1.03])[0] == UNRESOLVED


def test_the_floor_is_a_high_quantile_over_cells():
    rows = [
        row("eager", [1 + i / 1000] * 5, again=[1.0] * 5, seq_len=i, together=f"p{i}")
        for i in range(100)
    ]
    floor = noise_floor(pd.DataFrame(rows))
    assert floor.loc["forward", "pairs"] == 100
    assert 0.094 <= floor.loc["forward", "floor"] <= 0.096


@pytest.mark.parametrize("rounds", range(1, 14))
def test_the_coverage_is_the_probability_that_the_interval_holds_the_median(rounds):
    low, high, coverage = order_statistics(rounds)
    assert 0 <= low <= high < rounds
    sides = itertools.product((0, 1), repeat=rounds)
    covered = sum(1 for s in sides if low < sum(s) <= high)
    assert coverage == pytest.approx(covered / 2**rounds)
    if rounds >= 6:
        assert coverage >= 0.95
    else:
        assert (low, high) == (0, rounds - 1) and coverage < 0.95


def test_too_few_rounds_state_their_coverage():
    assert "the range of 5 rounds" in interval_sentence(5)
    assert "93.8 %" in interval_sentence(5)
    assert verdict([2.0])[0] == UNRESOLVED


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    low, high, coverage = order_statistics(9)
    samples = np.sort(rng.normal(size=(20_000, 9)), axis=1)
    hit = ((samples[:, low] < 0) & (samples[:, high] > 0)).mean()
    assert hit == pytest.approx(coverage, abs=0.006)
