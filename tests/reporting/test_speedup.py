"""Speed-ups between rows timed in turn (in one pass), with intervals and verdicts.

A verdict compares the interval with the noise floor (how far A/A intervals exclude 1).
"""

import numpy as np
import pandas as pd
import pytest

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.speedup import (
    Series,
    interval_sentence,
    noise_floors,
    rounds_words,
    speedup_cells,
    speedups,
)
from lmperf.statistics import FASTER, SAME, UNRESOLVED


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


def speedup_of(*rows, ours="compiled", base="eager", **where):
    """Speed-ups of ``ours`` over ``base``: a data frame, and the texts of table cells.

    where: column -> value of the rows of ``ours``; those of ``base`` have "float32" instead.
    """
    evidence = MachineEvidence("m", frames={"topic": pd.DataFrame(rows)})
    series = (
        Series.of(implementation=ours, **where),
        Series.of(implementation=base, **{name: "float32" for name in where}),
    )
    ratios = speedups(evidence, "topic", *series)
    return ratios, [*map(str, speedup_cells(evidence, "topic", *series))]


def test_ratio_is_the_median_of_ratios_per_round():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    ratios, words = speedup_of(row("eager", [2 * t for t in drift]), row("compiled", drift))
    assert ratios["ratio"].tolist() == [2.0]
    assert (ratios["low"].iloc[0], ratios["high"].iloc[0]) == (2.0, 2.0)
    assert ratios["verdict"].tolist() == ["faster"]
    assert words == ["2.00x (2.00-2.00)"]


def test_rows_timed_in_different_passes_have_no_ratio():
    ratios, words = speedup_of(row("eager", [2] * 7), row("compiled", [1] * 7, together="p2"))
    assert ratios.empty
    assert words == ["not timed in turn"]


def test_rows_without_a_pass_name_are_not_compared():
    ratios, _ = speedup_of(
        row("eager", [2] * 7, together=None), row("compiled", [1] * 7, together=None)
    )
    assert ratios.empty


def test_implementations_are_compared_within_one_dtype():
    ratios, words = speedup_of(row("eager", [2] * 7), row("compiled", [1] * 7, dtype="tf32"))
    assert ratios.empty and words == ["–"]


def test_dtypes_of_one_implementation_are_compared():
    rows = row("eager", [2] * 7), row("eager", [1] * 7, dtype="tf32")
    ratios, _ = speedup_of(*rows, ours="eager", base="eager", dtype="tf32")
    assert ratios["ratio"].tolist() == [2.0]
    assert ratios["floor"].isna().all()


def test_other_implementation_in_another_dtype_has_a_ratio():
    rows = row("eager", [2] * 7), row("compiled", [1] * 7, dtype="tf32")
    assert speedup_of(*rows, dtype="tf32")[0]["ratio"].tolist() == [2.0]


@pytest.mark.parametrize("red", [{"status": "failed_check"}, {"max_error": 1.0}])
def test_failed_gate_of_either_row_withholds_the_ratio(red):
    for bad in (0, 1):
        rows = [row("eager", [2] * 7), row("compiled", [1] * 7)]
        rows[bad].update(red)
        ratios, words = speedup_of(*rows)
        assert ratios.empty and words == ["withheld"]


def test_failed_rows_have_no_ratio():
    ratios, words = speedup_of(row("eager", [2] * 7, status="oom"), row("compiled", [1] * 7))
    assert ratios.empty and words == ["–"]


def verdict_of(ratios, again=None):
    rows = row("eager", ratios, again=again), row("compiled", [1.0] * len(ratios))
    found, words = speedup_of(*rows)
    return found["verdict"].iloc[0], words[0]


def test_wide_interval_is_unresolved_and_keeps_its_value():
    assert verdict_of([0.96, 1.5, 1.6, 1.7, 1.65, 1.67]) == (
        UNRESOLVED,
        "1.62x (0.96-1.70) unresolved",
    )


def test_interval_within_the_noise_floor_is_same():
    near = [0.995, 1.005, 0.997, 1.003, 1.0, 1.001]
    assert verdict_of(near)[0] == SAME and verdict_of(near)[1].endswith(" same")
    wide = [0.98, 1.02, 0.99, 1.01, 1.0, 1.0]
    assert verdict_of(wide)[0] == UNRESOLVED
    assert verdict_of(wide, again=[0.95] * 6)[0] == SAME, "the noise floor is 5 % now"


def test_interval_beyond_the_noise_floor_is_faster_or_slower():
    assert verdict_of([1.02] * 6)[0] == "faster" and verdict_of([0.97] * 6)[0] == "slower"
    assert verdict_of([1.005] * 6)[0] == SAME
    assert verdict_of([1.001, 1.002, 1.005, 1.006, 1.02, 1.03])[0] == UNRESOLVED


def test_noise_floor_is_per_phase_and_dtype():
    rows = [
        row("eager", [1 + i / 1000] * 6, again=[1.0] * 6, seq_len=i, together=f"p{i}")
        for i in range(100)
    ]
    rows += [row("eager", [1.0] * 6, dtype="bfloat16", phase=phase) for phase in ("forward", "x")]
    rows += [row("eager", [1.0] * 6, dtype="tf32", again=[1.2] * 3)]
    floors = noise_floors(pd.DataFrame(rows))
    assert floors["pairs"].to_dict() == {
        ("forward", "float32"): 100,
        ("forward", "bfloat16"): 0,
        ("x", "bfloat16"): 0,
        ("forward", "tf32"): 1,
    }
    assert 0.094 <= floors.loc[("forward", "float32"), "floor"] <= 0.096
    assert floors.loc[("forward", "bfloat16"), "floor"] != floors.loc[("forward", "tf32"), "floor"]
    assert floors.loc[("x", "bfloat16"), "floor"] != floors.loc[("x", "bfloat16"), "floor"], "NaN"


def test_noisy_cell_does_not_raise_the_floor_of_quiet_cells():
    scatter = [1.0, 1.6, 0.8, 1.3, 1.4, 1.0]
    noisy = row("eager", [1.0] * 6, again=scatter, seq_len=0, together="p0")
    quiet = [
        row(name, [ms] * 6, again=again, seq_len=1)
        for name, ms, again in (("eager", 1.09, [1.09] * 6), ("compiled", 1.0, None))
    ]
    floors = noise_floors(pd.DataFrame([noisy, *quiet])).loc[("forward", "float32")]
    assert floors["apart"] > 0.1 and floors["floor"] == 0 and floors["beyond"] == 0
    assert speedup_of(noisy, *quiet)[0]["verdict"].tolist() == [FASTER]


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.05, 1.019, 1.05, 1.06, 1.05, 1.05], UNRESOLVED),
        ([1.05, 1.03, 1.05, 1.06, 1.05, 1.05], FASTER),
    ],
)
def test_speedup_interval_is_compared_with_a_a_intervals(ratios, said):
    """The A/A interval starts at 1.02, so a speed-up interval from 1.019 may be noise as well."""
    pair = row("eager", [1.02, 1.03, 1.08, 1.05, 1.06, 1.03], again=[1.0] * 6, seq_len=0)
    rows = row("eager", ratios, together="p2"), row("compiled", [1.0] * 6, together="p2")
    assert speedup_of(pair, *rows)[0]["floor"].tolist() == [pytest.approx(0.02)]
    assert speedup_of(*rows)[0]["verdict"].tolist() == [FASTER], "without that pair"
    assert speedup_of(pair, *rows)[0]["verdict"].tolist() == [said]


def test_a_a_intervals_exclude_1_as_often_as_by_chance():
    draw = np.random.default_rng(0).normal(1, 0.05, (500, 2, 6))
    rows = [row("eager", one, again=two, together=str(i)) for i, (one, two) in enumerate(draw)]
    floors = noise_floors(pd.DataFrame(rows)).iloc[0]
    assert floors["chance"] == pytest.approx(500 / 32)
    assert abs(floors["beyond"] - floors["chance"]) < 3 * floors["chance"] ** 0.5
    assert floors["floor"] == 0 and floors["apart"] > 0.03


def test_a_a_pairs_of_one_dtype_do_not_judge_another():
    noisy = row("eager", [1.1] * 6, again=[1.0] * 6), row("compiled", [1.05] * 6)
    quiet = [{**one, "dtype": "bfloat16", "again_ms": None} for one in noisy]
    found, _ = speedup_of(*noisy, *quiet)
    assert found["verdict"].tolist() == [SAME, FASTER]
    assert found["floor"].isna().tolist() == [False, True]


@pytest.mark.parametrize("noisy", ("float32", "tf32"))
def test_floor_of_two_dtypes_is_the_floor_of_the_noisier_one(noisy):
    again = {"float32": [1.0] * 6, "tf32": [0.9] * 6, noisy: [0.8] * 6}
    rows = [row("eager", [1.0 if d == "tf32" else 1.1] * 6, dtype=d, again=again[d]) for d in again]
    found, _ = speedup_of(*rows, ours="eager", dtype="tf32")
    floors = noise_floors(pd.DataFrame(rows))["floor"]
    assert found["floor"].tolist() == [floors.max()] == [floors["forward", noisy]]


def test_false_discovery_rate_is_controlled_over_cells():
    close = [1.012, 1.05, 1.02, 1.013, 1.06, 1.011]
    near = row("eager", close, seq_len=0), row("compiled", [1.0] * 6, seq_len=0)
    others = [
        row(name, [1.0, 1.03, 0.97, 1.02, 0.98, 1.0][:: 1 if name == "eager" else -1], seq_len=i)
        for i in range(1, 40)
        for name in ("eager", "compiled")
    ]
    alone, among = speedup_of(*near)[0], speedup_of(*near, *others)[0]
    assert alone["verdict"].tolist() == [FASTER] and among["verdict"].iloc[0] == UNRESOLVED
    assert among["ratio"].iloc[0] == alone["ratio"].iloc[0], "its value is never hidden"


def test_cells_of_a_comparison_may_differ_in_rounds():
    rows = [
        row(name, [ms] * n, seq_len=n)
        for n in (6, 9, 30)
        for name, ms in (("eager", 2.0), ("compiled", 1.0))
    ]
    found, _ = speedup_of(*rows)
    assert found["rounds"].tolist() == [6, 9, 30] and (found["verdict"] == FASTER).all()


def test_rows_with_unequal_rounds_have_no_ratio():
    found, words = speedup_of(row("eager", [2.0] * 9), row("compiled", [1.0] * 6))
    assert found.empty and words == ["not timed in turn"]


def test_interval_sentence_covers_all_numbers_of_rounds():
    assert interval_sentence([5]).startswith("the range of 5 rounds, 93.8 %")
    assert verdict_of([2.0])[0] == UNRESOLVED
    assert interval_sentence([6, 12]) == (
        "the range of 6 rounds, inner order statistics of 12 rounds,"
        " 96.1 to 96.9 % sure to cover the true median"
    )
    assert len(interval_sentence(range(1, 200))) < 160
    assert "one round" in interval_sentence([1])
    assert rounds_words([6]) == "6" and rounds_words([6, 7, 9, 31]) == "6 to 31"
