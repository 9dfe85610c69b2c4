"""Tests of the choice of cases that a second process times as well (A/A tests)."""

import contextlib
import itertools
from unittest.mock import MagicMock

import pytest

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.measuring import run
from lmperf.measuring.twins import (
    MOST_GROUPS,
    TWIN,
    Assignment,
    fits,
    groups_with_twins,
    take_noise,
    twins_of,
)

GIB = 2**30


def assigned(worker, implementation, **axes):
    return Assignment(worker, Case(tuple(axes.items()), implementation))


def test_first_case_of_each_dtype_has_a_twin():
    eager, tf32 = (assigned("", "eager", dtype=dtype) for dtype in ("float32", "tf32"))
    mine = assigned("mine", "mine", dtype="float32")
    found = twins_of([eager, tf32, mine])
    assert found == {one: Assignment(TWIN, one.case) for one in (eager, tf32)}
    assert twins_of([mine])[mine].worker == f"mine {TWIN}"
    assert len(twins_of([assigned("", name) for name in ("a", "b")])) == 1, "without a dtype"


def test_custom_implementation_may_have_the_name_of_no_twin():
    assert " " in TWIN


@pytest.mark.parametrize(
    ("groups", "chosen"),
    [(0, set()), (1, {0}), (3, {0, 1, 2}), (2 * MOST_GROUPS, {*range(0, 2 * MOST_GROUPS, 2)})],
)
def test_groups_with_twins_are_evenly_spaced(groups, chosen):
    assert groups_with_twins(groups) == chosen


def test_at_most_a_constant_number_of_groups_has_twins():
    found = sorted(groups_with_twins(337))
    assert len(found) == MOST_GROUPS and found[-1] > 300
    gaps = {after - before for before, after in itertools.pairwise(found)}
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(
    ("sizes", "free", "expected"),
    [
        ([{"peak_mib": 1024.0, "resident_mib": 512.0}], 3 * GIB, True),
        ([{"peak_mib": 1024.0}, {"peak_mib": 1025.0}], 3 * GIB, False),
        ([{"resident_mib": 1025.0}], 3 * GIB, False),
        ([{}], GIB, True),
        ([{"peak_mib": None}], GIB - 1, False),
        ([{"peak_mib": 1e9}], None, True),  # unknown
    ],
)
def test_twin_needs_twice_the_peak_of_its_case(sizes, free, expected):
    assert fits(sizes, free) is expected


def test_noise_is_taken_only_from_a_timed_twin():
    row = {"rounds_ms": "1;2"}
    take_noise(row, {"status": "crash"})
    assert "again_ms" not in row
    take_noise(row, {"rounds_ms": "3;4"})
    assert row["again_ms"] == "3;4"
    failed = {"status": "oom"}
    take_noise(failed, {"rounds_ms": "3;4"})
    assert failed == {"status": "oom"}


@pytest.mark.parametrize(
    ("stem", "quick", "expected"),
    [("end_to_end", False, True), ("end_to_end", True, False), ("attention", True, True)],
)
def test_quick_run_times_no_model_in_a_second_process(monkeypatch, stem, quick, expected):
    supervisor, benchmark = MagicMock(), load(stem)
    supervisor.measure.return_value = []
    monkeypatch.setattr(run, "_supervised", lambda *_: contextlib.nullcontext(supervisor))
    group = benchmark.groups(benchmark.head_cases("cpu"))[0]
    others = (MagicMock(), MagicMock(), {}, {})
    run.measure(benchmark, [group], "cpu", lambda *_: None, *others, quick=quick)
    assert supervisor.measure.call_args.args[-1] is expected
