"""Tests of rank groups: times, gates and faults of cases that several processes run together."""

import os
import sys
import time

import pytest
from processes import is_running
from ranked_toy import WRONG, RankedObservedToy, RankedToy, case_of

from lmperf.measuring import group
from lmperf.measuring.descendants import descendants
from lmperf.measuring.ranked import largest, longest, step_times, worst_gate
from lmperf.measuring.readings import Reading, References
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.workers import PROJECT, Workers

process = pytest.mark.process
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux")


class QuickWorkers(Workers):
    def reading(self, request):
        return Reading(1.0, 1.0)  # the references would take longer than everything else here


@pytest.fixture(scope="module")
def shared():
    with Supervisor("cpu") as supervisor:
        supervisor.workers = QuickWorkers("cpu")
        yield supervisor


@pytest.fixture
def rows_of(shared, monkeypatch):
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(1, 1, 0.05))
    monkeypatch.setattr(group, "MOST_TAKES", 1)  # other tests load the machine
    shared.history.timeouts.clear()
    shared.history.references = References("cpu", {})

    def measure(*names, of=RankedToy, limit_s=20.0):
        benchmark = of("ranked_toy")
        benchmark.limit_s = limit_s
        cases = [case_of(name, 1 if name == "alone" else 2) for name in names]
        rows = shared.measure(benchmark, cases, 1, twins=False)
        return {row["implementation"]: row for row in rows}

    return measure


def ranks_of_worker(supervisor):
    pid = supervisor.workers.pid_of(PROJECT)
    return descendants(pid) - {pid} if pid else set()


def assert_measured(row):
    assert row["status"] == "ok", row


@process
def test_two_ranks_and_one_are_timed_in_turn(rows_of):
    rows = rows_of("right", "alone", "unsupported")
    for name in ("right", "alone"):
        assert rows[name]["status"] == "ok", rows[name]
        assert rows[name]["median_ms"] > 0 and rows[name]["max_error"] == 0
    assert rows["right"]["together"] == rows["alone"]["together"]
    assert rows["unsupported"]["status"] == "unsupported"
    assert rows["unsupported"]["reason"] == "needs four nodes"


@process
def test_ranks_are_reused_by_the_next_group(rows_of, shared):
    rows_of("right")
    before = ranks_of_worker(shared)
    assert len(before) >= 2
    assert_measured(rows_of("right")["right"])
    assert before <= ranks_of_worker(shared)


@process
def test_wrong_reductions_are_withheld(rows_of):
    rows = rows_of("right", *WRONG, "on_each_rank_another")
    assert rows.pop("right")["status"] == "ok"
    for name, row in rows.items():
        assert row["status"] == "failed_check", name
        assert "median_ms" not in row


@process
@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("exits", "crash", "rank 1: the process ended with exit code 3, twice"),
        ("raises", "crash", "rank 1: RuntimeError: no route to the other rank (ranked_toy.py:"),
        ("refuses", "unsupported", "rank 1, but not every rank: no such layout on this rank"),
    ],
)
@pytest.mark.slow
def test_fault_of_a_rank_is_a_row_and_its_peer_ends(rows_of, shared, name, status, reason):
    rows_of("right")
    before = ranks_of_worker(shared)
    row = rows_of(name)[name]
    assert row["status"] == status and row["reason"].startswith(reason)
    assert not any(map(is_running, before))
    assert_measured(rows_of("right")["right"])


@process
@pytest.mark.slow
def test_rank_without_memory_is_a_row_with_bytes(rows_of):
    row = rows_of("exhausts_memory")["exhausts_memory"]
    assert row["status"] == "oom" and row["requested_bytes"] == 2**50


@process
@pytest.mark.slow
def test_hanging_rank_ends_by_the_limit_of_the_benchmark(rows_of, shared):
    rows_of("right")
    before, began = ranks_of_worker(shared), time.monotonic()
    row = rows_of("hangs", limit_s=3.0)["hangs"]
    assert row["status"] == "timeout" and row["reason"] == "no answer within 3 s"
    assert time.monotonic() - began < 15
    assert not any(map(is_running, before))


@process
def test_observed_ranks_return_rows_of_rank_0(rows_of):
    assert rows_of("right", of=RankedObservedToy)["right"]["total"] == 3


@process
@linux
def test_ranks_end_with_their_killed_worker(rows_of, shared):
    rows_of("right")
    ranks = ranks_of_worker(shared)
    os.kill(shared.workers.pid_of(PROJECT), 9)
    until = time.monotonic() + 10
    while any(map(is_running, ranks)) and time.monotonic() < until:
        time.sleep(0.05)
    assert ranks and not any(map(is_running, ranks))
    assert_measured(rows_of("right")["right"])


def test_call_takes_as_long_as_its_slowest_rank():
    assert longest([[1.0, 5.0], [2.0, 3.0]]) == [2.0, 5.0]


def test_steps_back_to_back_end_on_their_last_rank():
    assert step_times([[1.0, 3.0, 1.0], [2.0, 1.0, 2.0]]) == [2.0, 2.0, 1.0]


def test_columns_of_ranks_are_the_largest_numbers():
    columns = [{"sent": 3, "name": "a", "flag": True}, {"sent": 5, "name": "b", "flag": False}]
    assert largest(columns) == {"sent": 5, "name": "a", "flag": True}


def test_gate_of_ranks_keeps_the_worst_error_of_each_tensor():
    parts = [
        {"errors": {"a": 0.1, "b": 2.0}, "bounds": {"a": 1.0, "b": 1.0}},
        {"errors": {"a": float("nan"), "b": 0.5}, "bounds": {"a": 1.0, "b": 1.0}},
    ]
    gate = worst_gate([{**part, "where": {}, "pytorch": {}} for part in parts])
    assert gate.errors["b"] == 2.0 and gate.verdict == "nan"
