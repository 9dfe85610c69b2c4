"""How often an answer that is wrong in some calls is found: as the self-test and docs/ say."""

import random

import pytest
import torch

from lmperf.attention.reference import attention
from lmperf.benchmark import Case, Workload
from lmperf.benchmarks import load
from lmperf.measuring.clock import Slice
from lmperf.measuring.prepared import Prepared
from lmperf.measuring.rounds import Pace, SliceResult, time_in_turn
from lmperf.measuring.state import State
from lmperf.selftest.cases import CASES
from lmperf.selftest.expectations import STEM
from lmperf.selftest.planted import WRONG_SHARE
from lmperf.selftest.planted.answers import wrong_now_and_then

PHASES = load(STEM).phases
CASE = Case((), "planted")
GATE_CALLS = 2  # one with normal inputs, one with large scores
(PLANTED,) = [case for case in CASES if case.name == "wrong_now_and_then"]


class Timer:
    """Counts the checked calls of a phase in slices of `calls` calls; no call takes time."""

    def __init__(self, calls, monkeypatch):
        self.calls, self.checks = calls, 0
        self.worker = Prepared(load(STEM), [CASE], (), "cpu", 0, None)
        self.worker._workloads[CASE] = Workload({}, check=lambda *_: None)
        monkeypatch.setattr(self.worker, "_part", self._part)

    def _part(self, case, phase, calls, checked):
        self.checks += checked
        return Slice([1.0] * calls)

    def warm_up(self, entry, least_ms):
        return 1.0, 1.0

    def slice(self, entry, repetitions, checked):
        assert repetitions == self.calls
        found = self.worker.slice(CASE, "forward", repetitions, checked)
        return SliceResult(found["times"], State())

    def between(self):
        pass


def checked_calls(calls, monkeypatch):
    """The number of timed calls that are checked in the fewest rounds of a phase."""
    timer = Timer(calls, monkeypatch)
    time_in_turn(["planted"], timer, Pace(1.0, slice_ms=calls, cap_s=60.0))
    return timer.checks


@pytest.mark.parametrize(("calls", "of_phase", "of_all"), [(1, 0.66, 0.29), (20, 0.49, 0.12)])
def test_wrong_answers_pass_as_often_as_documented(calls, of_phase, of_all, monkeypatch):
    right = 1 - WRONG_SHARE
    counts = [checked_calls(calls, monkeypatch) for _ in range(600)]
    passes = sum(right ** (count + GATE_CALLS) for count in counts) / len(counts)
    assert passes == pytest.approx(of_phase, abs=0.03)
    assert passes ** len(PHASES) == pytest.approx(of_all, abs=0.04)
    assert 1 - passes ** len(PHASES) > PLANTED.expect.often - 0.04


def test_planted_answer_is_wrong_in_a_tenth_of_calls(monkeypatch):
    monkeypatch.setattr("lmperf.selftest.planted.answers._CHANCE", random.Random(1))
    q, k, v = torch.randn(3, 1, 8, 4)
    right = attention(q, k, v, True)
    wrong = [not torch.equal(wrong_now_and_then(q, k, v, True), right) for _ in range(500)]
    assert sum(wrong) / 500 == pytest.approx(WRONG_SHARE, abs=0.04)
