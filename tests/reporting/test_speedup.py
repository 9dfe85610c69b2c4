"""Speed-ups between rows timed in turn (in one pass), with intervals and verdicts.

A verdict compares the ratio with the noise floor: how far apart two processes of the same code are.
"""

import statistics

import pandas as pd
import pytest

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.noise import floor_words, noise_floors
from lmperf.reporting.rounds import interval_sentence, rounds_words
from lmperf.reporting.speedup import (
    Series,
    averaged,
    compared,
    every,
    resolved,
    speedup_cells,
    speedups,
    verdict_of_mean,
)
from lmperf.statistics import FASTER, LEAST_PAIRS, SAME, UNKNOWN_FLOOR, UNRESOLVED


def row(implementation, rounds, together="p1", dtype="float32", again=None, **other):
    return {
        "seq_len": 128,
        "dtype": dtype,
        "implementation": implementation,
        "phase": "forward",
        "status": "ok",
        "median_ms": statistics.median(rounds),
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


def with_floor(floor, *rows, pairs=LEAST_PAIRS):
    """The rows, and cells whose two processes differ by ``floor``, which make the noise floor."""
    cells = [
        row("eager", [1 + floor] * 6, again=[1.0] * 6, seq_len=10_000 + i, together=f"floor{i}")
        for i in range(pairs)
    ]
    return [*rows, *cells]


def verdict_beside(floor, ratios, **marks):
    ours = row("compiled", [1.0] * len(ratios), **marks)
    return speedup_of(*with_floor(floor, row("eager", ratios), ours))[0]["verdict"].iloc[0]


def test_interval_within_the_noise_floor_is_same():
    near, wide = [0.995, 1.005, 0.997, 1.003, 1.0, 1.001], [0.98, 1.02, 0.99, 1.01, 1.0, 1.0]
    assert verdict_beside(0.0, near) == SAME
    assert verdict_beside(0.0, wide) == UNRESOLVED
    assert verdict_beside(0.05, wide) == SAME
    assert verdict_beside(0.30, wide) == UNRESOLVED, "so wide a floor cannot tell what is the same"
    assert verdict_of(near)[1].endswith(" same"), "the word follows the value"


def test_ratio_beyond_the_noise_floor_is_faster_or_slower():
    assert verdict_beside(0.0, [1.02] * 6) == FASTER
    assert verdict_beside(0.0, [0.97] * 6) == "slower"
    assert verdict_beside(0.0, [1.001, 1.002, 1.005, 1.006, 1.02, 1.03]) == UNRESOLVED
    assert verdict_beside(0.05, [1.04, 1.06] * 3) == UNRESOLVED
    assert verdict_beside(0.05, [1.06] * 6) == FASTER


def test_noise_floor_is_per_phase_and_dtype():
    rows = [
        row("eager", [1 + i / 1000] * 6, again=[1.0] * 6, seq_len=i, together=f"p{i}")
        for i in range(100)
    ]
    rows += [row("eager", [1.0] * 6, dtype="bfloat16", phase=phase) for phase in ("forward", "x")]
    rows += [
        row("eager", [1.0] * 6, dtype="tf32", again=[1.2] * 6, seq_len=i)
        for i in range(LEAST_PAIRS)
    ]
    floors = noise_floors(pd.DataFrame(rows))
    assert floors["pairs"].to_dict() == {
        ("forward", "float32", False): 100,
        ("forward", "bfloat16", False): 0,
        ("x", "bfloat16", False): 0,
        ("forward", "tf32", False): LEAST_PAIRS,
    }
    assert 0.094 <= floors.loc[("forward", "float32", False), "floor"] <= 0.096
    assert floors.loc[("forward", "tf32", False), "floor"] == pytest.approx(0.2)
    assert 0.09 < floors.loc[("x", "bfloat16", False), "floor"] < 0.2, "of all pairs"


def test_short_calls_have_a_floor_of_their_own():
    def pairs(number, ms, apart, **columns):
        rows = [row("eager", [ms] * 6, again=[ms * apart] * 6, seq_len=i) for i in range(number)]
        return [{**one, **columns} for one in rows]

    noisy, steady = pairs(9, 0.01, 1.08), pairs(9, 1.0, 1.002)
    lone = pairs(1, 1.0, 1.3, phase="x")
    floors = noise_floors(pd.DataFrame([*noisy, *steady, *lone]))["floor"]
    assert floors["forward", "float32", True] == pytest.approx(0.08, rel=0.1)
    assert floors["forward", "float32", False] == pytest.approx(0.002, rel=0.1)
    assert floors["x", "float32", False] == pytest.approx(0.3, rel=0.01), "of its own pair"
    alike = noise_floors(pd.DataFrame([*noisy, *steady, *pairs(1, 1.0, 1.0, phase="x")]))["floor"]
    assert alike["x", "float32", False] == pytest.approx(0.002, rel=0.1), "of long calls"
    few = noise_floors(pd.DataFrame([*noisy, *pairs(2, 1.0, 1.002)]))["floor"]
    assert few["forward", "float32", False] == pytest.approx(0.08, rel=0.1), "of all calls"
    both = row("eager", [0.299] * 6, seq_len=99), row("compiled", [0.301] * 6, seq_len=99)
    found, _ = speedup_of(*noisy, *steady, *both)
    assert found.loc[found["base_ms"] == 0.299, "floor"].item() == pytest.approx(0.08, rel=0.1)


def test_host_bound_steps_have_a_floor_of_their_own():
    def pairs(number, apart, **columns):
        columns = {"eager_ms": None, "again": [10.0 * apart] * 6, **columns}
        return [row("eager", [10.0] * 6, seq_len=i, **columns) for i in range(number)]

    steps = [*pairs(9, 1.3, host_ms=9.5), *pairs(9, 1.003, host_ms=8.0)]
    floors = noise_floors(pd.DataFrame(steps))["floor"]
    assert floors["forward", "float32", True] == pytest.approx(0.3, rel=0.1)
    assert floors["forward", "float32", False] == pytest.approx(0.003, rel=0.1)
    kernels = pairs(9, 1.003, host_ms=9.5, eager_ms=10.0)
    assert [*noise_floors(pd.DataFrame(kernels)).index] == [("forward", "float32", False)]


def test_floor_of_a_mean_is_the_mean_of_the_floors():
    rows = pd.DataFrame({"ratio": 1.07, "floor": [0.01] * 8 + [0.08] * 2})
    rows["verdict"] = [FASTER] * 8 + [SAME] * 2
    assert verdict_of_mean(rows) == FASTER, "two short calls do not decide"
    assert verdict_of_mean(rows.assign(ratio=1.02)) == SAME


def test_floor_is_named_as_the_verdicts_use_it():
    few, quiet = (
        floor_words(noise_floors(pd.DataFrame(with_floor(0.0, pairs=number))))
        for number in (1, LEAST_PAIRS)
    )
    assert few.startswith("noise floor of up to 10.0 %") and "from 1 pair of" in few
    assert "differ by" not in few, "one pair has not shown a difference of 10 %"
    assert quiet.startswith("noise floor of up to 1.0 %")
    assert (
        floor_words(noise_floors(pd.DataFrame(with_floor(0.0, row("eager", [1.0] * 6), pairs=0))))
        == ""
    )


def test_floor_of_too_few_pairs_is_ten_percent_or_more():
    few = with_floor(0.01, pairs=LEAST_PAIRS - 1)
    assert noise_floors(pd.DataFrame(few))["floor"].tolist() == [UNKNOWN_FLOOR]
    wide = with_floor(0.3, pairs=1)
    assert noise_floors(pd.DataFrame(wide))["floor"].tolist() == [pytest.approx(0.3)]
    assert noise_floors(pd.DataFrame(few), unknown=0)["floor"].tolist() == [pytest.approx(0.01)]
    assert verdict_of([1.08] * 6)[0] == UNRESOLVED and verdict_of([1.12] * 6)[0] == FASTER
    assert verdict_of([1.005] * 6)[0] == SAME


@pytest.mark.parametrize("mark", ["loaded", "drift", "host", "host_bound", "capped"])
def test_marked_pairs_do_not_enter_the_floor(mark):
    loaded = row("eager", [447.0] * 6, again=[1.0] * 6, seq_len=1, marks=mark)
    found = noise_floors(pd.DataFrame(with_floor(0.02, loaded)))
    assert found["floor"].tolist() == [pytest.approx(0.02)]
    assert found["pairs"].tolist() == [LEAST_PAIRS]


def test_times_are_not_compared_more_finely_than_the_clock_ticks():
    """A step of the event timer, 0.5 us, is 10 % of 5 us."""
    floors = [
        row("eager", [0.005] * 6, again=[0.005] * 6, seq_len=i, together=f"p{i}") for i in range(9)
    ]
    assert noise_floors(pd.DataFrame(floors))["floor"].tolist() == [0.0]
    pair = row("eager", [0.00549] * 6, seq_len=99), row("compiled", [0.005] * 6, seq_len=99)
    found, _ = speedup_of(*with_floor(0.0, *pair))
    assert found["floor"].tolist() == [pytest.approx(0.1)]
    assert found["verdict"].tolist() == [UNRESOLVED]


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        *((mark, UNRESOLVED) for mark in ("loaded", "drift", "host", "host_bound")),
        ("capped", FASTER),
        ("time_cap", FASTER),
    ],
)
def test_disturbed_times_are_never_faster_slower_or_the_same(mark, said):
    assert verdict_beside(0.0, [2.0] * 6, marks=mark) == said
    assert verdict_beside(0.0, [1.0] * 6, marks=mark) == (SAME if said == FASTER else said)
    rows = row("eager", [2.0] * 6, marks=mark), row("compiled", [1.0] * 6)
    found, words = speedup_of(*with_floor(0.0, *rows))
    assert found["verdict"].tolist() == [said] and ("unresolved" in words[0]) == (said != FASTER)


def test_conclusions_rest_on_resolved_and_sound_speedups():
    wide = [0.96, 1.5, 1.6, 1.7, 1.65, 1.67]
    narrow = [0.999, 1.012, 1.01, 1.011, 1.015, 1.013]
    cells = {
        1: ([2.0] * 6, ""),
        2: ([2.0] * 6, ""),
        3: ([2.0] * 6, ""),
        4: ([2.0] * 6, "capped"),
        5: (wide, ""),
        6: (narrow, ""),
    }
    rows = [
        one
        for n, (ms, marks) in cells.items()
        for one in (
            row("eager", ms, seq_len=n, together=f"c{n}"),
            row("compiled", [1.0] * 6, seq_len=n, together=f"c{n}", marks=marks),
        )
    ]
    evidence = MachineEvidence("m", frames={"topic": pd.DataFrame(with_floor(0.0, *rows))})
    pair = [Series.of(implementation=name) for name in ("compiled", "eager")]
    chosen = {which: which(evidence, "topic", *pair) for which in (every, compared, averaged)}
    assert [sorted(found["seq_len"]) for found in chosen.values()] == [
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3],
        [1, 2, 3, 6],
    ]


def test_less_than_half_of_the_speedups_supports_no_conclusion():
    rows = [
        row(name, [ms] * 6, seq_len=n, marks="loaded" if n else "")
        for n in range(3)
        for name, ms in (("eager", 2.0), ("compiled", 1.0))
    ]
    evidence = MachineEvidence("m", frames={"topic": pd.DataFrame(rows)})
    pair = [Series.of(implementation=name) for name in ("compiled", "eager")]
    assert (
        len(every(evidence, "topic", *pair)) == 3 and len(resolved(evidence, "topic", *pair)) == 1
    )
    assert compared(evidence, "topic", *pair).empty and averaged(evidence, "topic", *pair).empty


@pytest.mark.parametrize("noisy", ("float32", "tf32"))
def test_floor_of_two_dtypes_is_the_floor_of_the_noisier_one(noisy):
    again = {"float32": [1.0] * 6, "tf32": [0.9] * 6, noisy: [0.8] * 6}
    rows = [
        row("eager", [1.0 if d == "tf32" else 1.1] * 6, dtype=d, again=again[d], seq_len=n)
        for d in again
        for n in range(LEAST_PAIRS)
    ]
    found, _ = speedup_of(*rows, ours="eager", dtype="tf32")
    floors = noise_floors(pd.DataFrame(rows))["floor"]
    assert set(found["floor"]) == {floors.max()} == {floors["forward", noisy, False]}


def test_false_discovery_rate_is_controlled_over_cells():
    close = [1.012, 1.05, 1.02, 1.013, 1.06, 1.011]
    near = row("eager", close, seq_len=0), row("compiled", [1.0] * 6, seq_len=0)
    others = [
        row(name, [1.0, 1.03, 0.97, 1.02, 0.98, 1.0][:: 1 if name == "eager" else -1], seq_len=i)
        for i in range(1, 40)
        for name in ("eager", "compiled")
    ]
    alone, among = (speedup_of(*with_floor(0.0, *rows))[0] for rows in (near, (*near, *others)))
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


def step(implementation, ms, blocks=None, **other):
    found = {"phase": "train_step", "environment": "e1", "host_ms": 0.1, "median_ms": ms, **other}
    if blocks:
        found |= {"sustained_ms": blocks[0], "sustained_rounds_ms": ";".join(map(str, blocks))}
    return row(implementation, [ms] * 7, **found)


def test_steps_are_compared_by_their_sustained_times():
    eager, compiled = step("eager", 8.0, [9.0] * 10), step("compiled", 4.0, [6.0] * 10)
    ratios, words = speedup_of(eager, compiled)
    assert ratios["ratio"].tolist() == [1.5] and ratios["base_ms"].tolist() == [9.0]
    assert ratios["rounds"].tolist() == [10] and words == ["1.50x (1.50-1.50)"]


def test_step_without_sustained_time_is_compared_by_bursts():
    ratios, _ = speedup_of(step("eager", 8.0, [9.0] * 10), step("compiled", 4.0))
    assert ratios["ratio"].tolist() == [2.0]


def test_sustained_times_need_not_be_taken_in_turn():
    eager = step("eager", 8.0, [9.0] * 10)
    apart = step("compiled", 4.0, [6.0] * 10, together="p2")
    assert speedup_of(eager, apart)[0]["verdict"].tolist() == [FASTER]
    other = {**apart, "environment": "e2"}
    assert speedup_of(eager, other)[1] == ["not timed in turn"]
    assert speedup_of(eager, {**apart, "phase": "forward"})[0].empty


@pytest.mark.parametrize(
    ("gpus", "together", "said"),
    [
        (("GPU-a", "GPU-a"), "p2", "1.50x (1.50-1.50)"),
        (("GPU-a", "GPU-b"), "p2", "another GPU"),
        (("", ""), "p2", "another run"),  # two jobs that did not record their GPUs
        (("GPU-a", "GPU-b"), "p1", "1.50x (1.50-1.50)"),  # timed in turn, whatever jobs say
    ],
)
def test_sustained_times_are_compared_on_one_gpu_only(gpus, together, said):
    hours = ("2026-11-24T10", "2026-11-24T20")
    rows = [
        step(name, ms, [ms] * 10, together=of, measured_at=f"{hour}:00:30Z")
        for name, ms, of, hour in zip(
            *(("eager", "compiled"), (9.0, 6.0), ("p1", together), hours), strict=True
        )
    ]
    jobs = [
        {"stem": "topic", "gpus": gpu, "started_at": f"{h}:00:00Z", "finished_at": f"{h}:01:00Z"}
        for gpu, h in zip(gpus, hours, strict=True)
    ]
    facts = {"environments": {"e1": {"kind": "cuda"}}}
    frames = {"topic": pd.DataFrame(rows)}
    evidence = MachineEvidence("m", facts, frames, cost=pd.DataFrame(jobs))
    series = Series.of(implementation="compiled"), Series.of(implementation="eager")
    assert [*map(str, speedup_cells(evidence, "topic", *series))] == [said]


def test_host_bound_steps_of_two_groups_are_unresolved():
    eager, apart = (
        step(name, ms, [ms] * 10, together=name, host_ms=ms)
        for name, ms in (("eager", 9.0), ("compiled", 6.0))
    )
    assert speedup_of(eager, apart)[0]["verdict"].tolist() == [UNRESOLVED]
    assert speedup_of(eager, {**apart, "host_ms": 1.0})[0]["verdict"].tolist() == [FASTER]
    bursts = [{**one, "median_ms": 2 * one["host_ms"]} for one in (eager, apart)]
    assert speedup_of(*bursts)[0]["verdict"].tolist() == [UNRESOLVED], "back to back they are"


def test_host_bound_sustained_steps_are_unresolved():
    """Stretches of steps run one after the other, even if the bursts were timed in turn."""
    eager, compiled = (
        step(name, ms, [ms] * 10, host_ms=ms) for name, ms in (("eager", 9.0), ("compiled", 6.0))
    )
    assert speedup_of(eager, compiled)[0]["verdict"].tolist() == [UNRESOLVED]
    assert speedup_of(eager, {**compiled, "host_ms": 1.0})[0]["verdict"].tolist() == [FASTER]
    bursts = step("eager", 9.0, host_ms=9.0), step("compiled", 6.0, host_ms=6.0)
    assert speedup_of(*bursts)[0]["verdict"].tolist() == [FASTER]
