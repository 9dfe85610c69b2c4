"""What is said of a user's implementations before the long run."""

import pytest

from lmperf.benchmarks import load
from lmperf.measuring import first_check, group
from lmperf.measuring.first_check import first_checks, small_case
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import PROJECT, Supervisor

CELL = "batch=8, seq_len=256, d_head=16, dtype=float32, causal=False"


def test_each_is_tried_in_a_small_cell_and_nothing_is_left_of_it(monkeypatch):
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(1, 1, 0.05))
    monkeypatch.setattr(first_check, "_LIMIT_S", 1.5)
    names = ("is_right", "drops_the_last_key", "raises", "hangs")
    benchmark = load("attention", {name: f"faulty:{name}" for name in names})
    with Supervisor("cpu") as supervisor:
        lines = list(first_checks(benchmark, supervisor))
        assert {*supervisor.hosts} <= {PROJECT}
        assert not supervisor.hung  # in the run it may take longer
    assert benchmark.limit_s == 120.0
    before = [f"{name}, at first in a small cell ({CELL}): " for name in names]
    both = zip(lines, before, strict=True)
    right, wrong, raises, hangs = (line.removeprefix(words) for line, words in both)
    assert right == "is right"
    assert wrong.startswith("failed_check: ") and "differs from the float64 reference" in wrong
    assert raises.startswith("crash: RuntimeError: no kernel for this (faulty.py")
    assert hangs == "timeout: no answer within 1.5 s"


def test_what_hung_for_as_long_as_it_may_is_not_waited_for_again(monkeypatch):
    benchmark = load("attention", {"hangs": "faulty:hangs"})
    benchmark.limit_s = 1.5
    with Supervisor("cpu") as supervisor:
        list(first_checks(benchmark, supervisor))
        assert {*supervisor.hung} == {("hangs", "hangs")}


@pytest.mark.parametrize("stem", ["attention", "flash_attention", "lrpe", "end_to_end"])
def test_what_takes_one_has_a_small_cell(stem):
    assert small_case(load(stem, {"mine": "faulty:is_right"}), "mine") is not None
    assert small_case(load(stem), "mine") is None
