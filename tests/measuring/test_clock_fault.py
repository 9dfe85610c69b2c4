"""Tests of the comparison of a worker's clock with the supervisor's."""

from types import SimpleNamespace

import pytest

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.measuring import group
from lmperf.measuring.clock_settings import OTHER_CLOCK_SLICES
from lmperf.measuring.group import Assignment, Group, clock_fault
from lmperf.measuring.history import RunHistory
from lmperf.measuring.readings import References
from lmperf.measuring.state import State

MS = 1_000_000
HERE = (0, 100 * MS)


@pytest.mark.parametrize("in_worker", [(0, 100), (1, 99), (2, 94.5)])
def test_slice_that_ends_with_its_answer_has_no_fault(in_worker):
    began, ended = (int(ms * MS) for ms in in_worker)
    assert clock_fault(HERE, (began, ended), [40.0, 50.0]) is None


@pytest.mark.parametrize("in_worker", [(-1, 50), (10, 101), (50, 40), (0, 80)])
def test_impossible_slice_is_a_certain_fault(in_worker):
    began, ended = (ms * MS for ms in in_worker)
    fault = clock_fault(HERE, (began, ended), [40.0, 50.0])
    assert fault.certain and "its clock is wrong" in fault.reason


@pytest.mark.parametrize("speed", [0.8, 0.6])
def test_slice_of_a_slow_clock_ends_long_before_its_answer(speed):
    fault = clock_fault(HERE, (0, int(speed * HERE[1])), [10.0])
    assert fault is not None and not fault.certain


@pytest.fixture
def timed(monkeypatch):
    """A group of one entry whose calls take 10 ms; `late_ms(slice ms)` is how late it answers."""
    asked, now = [], [0]
    monkeypatch.setattr(group.time, "perf_counter_ns", lambda: now[0])

    def ask(worker, request, case, phase, calls, checked, **how):
        asked.append(calls)
        began, took = now[0], 10 * calls
        now[0] += int((took + timed.late_ms(took)) * MS)
        return {"times": [9.0] * calls, "interval_ns": (began, began + took * MS)}

    watch = SimpleNamespace(begin=lambda: None, end=lambda: State(other_load=timed.load))
    watch.sample = None
    workers = SimpleNamespace(ask=ask, watch=watch, on_step=lambda *_: None)
    one = Assignment("", Case((), "mine"))
    history = RunHistory(References("cpu", {}))
    made = Group(workers, history, load("attention"), [one], 0, {}, ())
    entry = one, "forward"
    made._cases.ready[entry] = {}

    def timed():
        return made.slice(entry, 1, False)

    timed.asked, timed.rows, timed.load = asked, made._cases.rows, 0.0
    return timed


def test_slow_clock_fails_after_several_late_slices(timed):
    timed.late_ms = lambda took: 0.25 * took
    assert all(timed() for _ in range(OTHER_CLOCK_SLICES - 1))
    assert timed() is None
    ((row,),) = timed.rows.values()
    assert row["status"] == "failed_check" and "its clock is wrong" in row["reason"]


def test_answers_that_come_late_by_chance_do_not_fail(timed):
    timed.late_ms = lambda took: 4.0
    assert all(timed() for _ in range(50))
    assert set(timed.asked) == {1, 2, 4, 8}


def test_late_answers_beside_other_load_do_not_fail(timed):
    timed.late_ms, timed.load = lambda took: took, 0.5
    assert all(timed() for _ in range(2 * OTHER_CLOCK_SLICES))
    assert set(timed.asked) == {1}
