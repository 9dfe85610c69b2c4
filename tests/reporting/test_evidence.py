"""Rows are judged once, when they are read."""

import pytest
from planted import H200, evidence, row

from lmperf.benchmark import COMMON_COLUMNS
from lmperf.benchmarks import load, stems
from lmperf.reporting.evidence import ASSUMED_FLOORS
from lmperf.reporting.frames import sorted_for_reading
from lmperf.reporting.judging import KERNEL, STEP, WAITING


def frame(*rows, stem="end_to_end", **more):
    return evidence(*rows, **more).rows(stem)


def test_benchmark_that_was_not_measured_has_no_rows():
    rows = evidence().rows("lrpe")
    assert rows.empty and {"state", "signs", "holds", "ms"} <= {*rows.columns}


def test_page_is_about_the_custom_implementations_that_were_measured():
    rows = [row("lrpe", 1.0, implementation=name) for name in ("b", "triton", "a")]
    recorded = {f"lrpe.{name}": {"entry": "x:y"} for name in ("b", "c", "a")}
    facts = H200 | {"implementations": recorded}
    assert evidence(*rows).subjects("lrpe") == [] and not evidence(*rows).is_own
    own = evidence(*rows, facts=facts)
    assert own.is_own and own.subjects("lrpe") == ["b", "a"] and own.subjects("memory") == []
    assert evidence(*rows, facts=facts, chosen={"lrpe": ["a"]}).subjects("lrpe") == ["a"]


@pytest.mark.parametrize(
    ("values", "state", "words"),
    [
        ({}, None, ""),
        ({"status": "failed_check"}, "failed_check", "withheld"),
        ({"status": "nan"}, "nan", "result not finite"),
        ({"status": "unsupported"}, "unsupported", "unsupported"),
        ({"max_error": 0.5, "error_bound": 1.0}, None, ""),
        (
            {"status": "oom", "requested_bytes": 2**31, "free_bytes": 2**30},
            "oom",
            "OOM (asked 2.0 GiB, free 1.0 GiB)",
        ),
        ({"status": "oom"}, "oom", "OOM"),
    ],
)
def test_state_says_why_a_row_has_no_result(values, state, words):
    one = frame(row("end_to_end", 10.0, **values)).iloc[0]
    assert (one["state"], one["words"], one["holds"]) == (state, words, state is None)


def test_time_below_the_data_sheet_is_impossible():
    fast = row("flash_attention", 0.001, flops=1e15, dtype="bfloat16")
    one = frame(fast, row("ceilings", 1.0), stem="flash_attention").iloc[0]
    assert one["state"] == "impossible" and not one["holds"]


def test_interval_mean_and_rates_follow_from_the_stretches():
    step = row("end_to_end", 12.0, flops=1e12, tokens=4096, peak_mib=2048, rounds_ms="11;12;13")
    one = frame(step).iloc[0]
    assert (one["ms"], one["low_ms"], one["high_ms"]) == (12.0, 11.0, 13.0)
    assert (one["mean_ms"], one["std_ms"]) == (12.0, 1.0)
    assert one["tflops"] == pytest.approx(1e12 / 12.0 / 1e9)
    assert one["tokens_s"] == pytest.approx(4096 / 0.012)
    assert one["peak_gib"] == 2.0


def test_columns_of_benchmarks_are_not_replaced():
    declared = {name for stem in stems() for name in load(stem).kinds}
    judged = [{*evidence().rows(stem)} - {*load(stem).kinds} for stem in stems()]
    common = {column.name for column in COMMON_COLUMNS}
    assert not set.union(*judged) & declared - common


@pytest.mark.parametrize(
    ("values", "waits"),
    [
        ({"bound": "host"}, True),
        ({"bound": "device", "host_ms": 9.5, "spread": 30}, False),
        # Ranks that wait for each other are busy.
        ({"bound": "device", "spread": 20, "communication_ms": 5}, False),
        ({"bound": "device", "spread": 30, "communication_ms": 5}, True),
    ],
)
def test_step_waits_if_the_host_takes_its_time(values, waits):
    step = row("end_to_end", 10.0, phase="train_step", **values)
    assert frame(step).iloc[0]["waits"] == waits


@pytest.mark.parametrize(
    ("watts", "mhz", "waits"), [(690, 1500, False), (600, 1500, True), (690, 1980, True)]
)
def test_step_at_the_power_limit_does_not_wait(watts, mhz, waits):
    """Its profile, at a higher clock, is shorter than its time."""
    known = {"bound": "host", "power_w": watts, "clock_mhz": mhz}
    step = row("end_to_end", 10.0, phase="train_step", **known)
    steps = evidence(step, facts=H200 | {"clock_sm_mhz": 1980}).rows("end_to_end")
    assert steps.iloc[0]["waits"] == waits


@pytest.mark.parametrize(
    ("marks", "stale", "signs"),
    [
        ("settings;capped", "", ("capped",)),
        ("loaded", "", ("loaded",)),
        ("", "k", ("stale",)),
        ("settings;loaded;capped", "k", ("capped", "loaded", "stale")),
    ],
)
def test_loaded_and_stale_rows_do_not_hold(marks, stale, signs):
    one = frame(row("end_to_end", 10.0, marks=marks, key="k"), stale=frozenset([stale])).iloc[0]
    assert one["signs"] == signs and one["holds"] == (signs == ("capped",))


@pytest.mark.parametrize(
    ("pairs", "apart", "floor"),
    [(10, 0.02, 0.02), (9, 0.02, ASSUMED_FLOORS[KERNEL]), (9, 0.12, 0.12), (0, 0, 0.03)],
)
def test_noise_floor_is_assumed_until_ten_pairs_tell_it(pairs, apart, floor):
    rows = [row("flash_attention", 1.0, seq_len=n) for n in range(256, 266)]
    again = [row("flash_attention", 1 + apart, key=one["key"]) for one in rows[:pairs]]
    found = evidence(*rows, row("end_to_end", 9.0), again={"flash_attention": again})
    assert found.floors == ASSUMED_FLOORS | {KERNEL: pytest.approx(floor)}
    assert (KERNEL in found.assumed) == (floor == ASSUMED_FLOORS[KERNEL])


@pytest.mark.parametrize(
    ("groups", "drift", "apart", "floor"),
    [
        (10, 1.2, 0.02, 0.02),  # both of a group took longer: their speed-up is the same
        (9, 1.2, 0.02, ASSUMED_FLOORS[KERNEL]),
        (9, 1.2, 0.12, 0.12),
        (2, 1.0, 0.12, 0.06),  # half of the times are 12 % apart
        (0, 1.0, 0.0, ASSUMED_FLOORS[KERNEL]),
    ],
)
def test_noise_floor_of_speed_ups_is_of_groups_measured_twice(groups, drift, apart, floor):
    rows, again = [], []
    for group in range(10):
        for name, factor in (("triton", drift), ("sdpa_cudnn", drift * (1 + apart))):
            cell = {"implementation": name, "seq_len": 2**group}
            rows.append(row("flash_attention", 1.0, **cell, together=f"{group}"))
            known = {"key": rows[-1]["key"], "together": f"{group} again"}
            again.append(row("flash_attention", factor, **cell, **known))
    found = evidence(*rows, again={"flash_attention": again[: 2 * groups]})
    assert found.speedup_floors == ASSUMED_FLOORS | {KERNEL: pytest.approx(floor)}
    assert found.speedups_twice["again"].tolist() == pytest.approx([1 / (1 + apart)] * groups)


@pytest.mark.parametrize(("groups", "floor"), [(5, 1.01 / 0.99 - 1), (4, ASSUMED_FLOORS[KERNEL])])
def test_noise_floor_of_speed_ups_is_of_every_pair_of_a_group(groups, floor):
    """The third of three follows from two others: it sets the floor, and does not count for ten."""
    rows, again = [], []
    for group in range(groups):
        for name, factor in (("triton", 1.0), ("sdpa_cudnn", 1.01), ("sdpa_flash", 0.99)):
            cell = {"implementation": name, "seq_len": 2**group}
            rows.append(row("flash_attention", 1.0, **cell, together=f"{group}"))
            known = {"key": rows[-1]["key"], "together": f"{group} again"}
            again.append(row("flash_attention", factor, **cell, **known))
    found = evidence(*rows, again={"flash_attention": again})
    assert found.speedup_floors[KERNEL] == pytest.approx(floor)
    assert len(found.speedups_twice.query("not follows")) == 2 * groups


@pytest.mark.parametrize(("first", "second", "kind"), [("", "host", STEP), ("host", "", WAITING)])
def test_pair_is_of_the_kind_of_its_first_time(first, second, kind):
    one = row("end_to_end", 10.0, bound=first or "device")
    again = row("end_to_end", 14.0, bound=second or "device", key=one["key"])
    found = evidence(one, again={"end_to_end": [again]})
    assert found.floors == ASSUMED_FLOORS | {kind: pytest.approx(0.4)}


def test_second_time_before_the_first_is_no_pair():
    one = row("lrpe", 1.0, measured_at="2026-11-28T17:47")
    for time, pairs in (("2026-11-28T15:15", 0), ("2026-11-28T18:00", 1)):
        again = row("lrpe", 1.0, key=one["key"], measured_at=time)
        assert len(evidence(one, again={"lrpe": [again]}).twice) == pairs


def test_rows_are_in_reading_order():
    sizes = ("3.4B", "0.13B", "2.0B", "0.42B")
    rows = frame(*(row("end_to_end", 10.0, size=size) for size in sizes))
    assert rows["size"].tolist() == ["small", "medium", "2.0B", "3.4B"]
    shapes = evidence(*(row("lrpe", 1.0, shape=shape) for shape in ("32x32", "512", "4x4x4")))
    assert shapes.rows("lrpe")["shape"].tolist() == ["4x4x4", "512", "32x32"]
    assert sorted_for_reading(rows.iloc[:0], ["size"]).empty


def test_rates_are_shares_of_ceiling_and_data_sheet():
    matmul = row(
        "ceilings", 1.0, operation="matmul", dtype="bfloat16", load="burst", tflops=800, flops=8e11
    )
    step = row("end_to_end", 10.0, dtype="autocast_bfloat16", phase="train_step", flops=4e12)
    one = frame(matmul, step).iloc[0]
    assert one["share"] == pytest.approx(0.5) and one["mfu"] == pytest.approx(400 / 989.5)


def test_ceilings_have_times_of_one_call():
    known = {"operation": "matmul", "dtype": "bfloat16", "load": "sustained", "calls": 21}
    (found,) = evidence(row("ceilings", 525.0, **known)).rows("ceilings").to_dict("records")
    assert found["ms"] == pytest.approx(25) and found["low_ms"] <= 25 <= found["high_ms"] < 26
