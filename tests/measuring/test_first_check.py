"""Tests of the quick check that custom implementations get before a run."""

import pytest

from lmperf.benchmarks import load
from lmperf.measuring import first_check, group
from lmperf.measuring.first_check import first_checks, small_case
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.workers import PROJECT

CELL = "batch=8, seq_len=256, d_head=16, dtype=float32, causal=False"


@pytest.mark.process
def test_each_implementation_is_checked_and_its_worker_ended(monkeypatch):
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(1, 1, 0.05))
    monkeypatch.setattr(first_check, "_LIMIT_S", 3.0)
    names = ("is_right", "drops_the_last_key", "raises", "hangs")
    benchmark = load("attention", {name: f"faulty:{name}" for name in names})
    with Supervisor("cpu") as supervisor:
        lines = list(first_checks(benchmark, supervisor, names))
        assert {*supervisor.workers.names} <= {PROJECT}
        assert not supervisor.history.timeouts  # the run has a longer limit
    assert benchmark.limit_s == 120.0
    before = [f"{name}, first check ({CELL}): " for name in names]
    both = zip(lines, before, strict=True)
    right, wrong, raises, hangs = (line.removeprefix(words) for line, words in both)
    assert right == "correct"
    assert wrong.startswith("failed_check: ") and "differs from the float64 reference" in wrong
    assert raises.startswith("crash: RuntimeError: no kernel for this (faulty.py")
    assert hangs == "timeout: no answer within 3 s"


@pytest.mark.process
def test_timeout_of_first_check_counts_in_the_run(monkeypatch):
    benchmark = load("attention", {"hangs": "faulty:hangs"})
    benchmark.limit_s = 1.5
    with Supervisor("cpu") as supervisor:
        assert not list(first_checks(benchmark, supervisor, ()))
        list(first_checks(benchmark, supervisor, ["hangs"]))
        assert {*supervisor.history.timeouts} == {("hangs", "hangs")}


@pytest.mark.parametrize("stem", ["attention", "flash_attention", "lrpe", "end_to_end"])
def test_every_custom_implementation_has_a_small_cell(stem):
    assert small_case(load(stem, {"mine": "faulty:is_right"}), "mine") is not None
    assert small_case(load(stem), "mine") is None
