"""A case may have fewer phases than its benchmark (`Benchmark.phases_of`)."""

import pytest

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.evidence.review import _lacking
from lmperf.measuring.assigned import AssignedCases
from lmperf.measuring.prepared import Prepared
from lmperf.measuring.twins import Assignment

CELL = {"batch": 2, "seq_len": 32, "d_head": 16, "dtype": "float32", "causal": True}


@pytest.fixture
def benchmark():
    made = load("attention")
    made.phases_of = lambda case: ("forward",)
    return made


@pytest.fixture
def case(benchmark):
    return Case(tuple((axis.name, CELL[axis.name]) for axis in benchmark.axes), "eager")


def test_only_phases_of_a_case_are_prepared_and_have_rows(benchmark, case):
    sent = []
    Prepared(benchmark, [case], set(), "cpu", 1, lambda *message: sent.append(message)).prepare()
    assert {phase for kind, _, phase, _ in sent if kind in ("row", "ready")} == {"forward"}


def test_row_has_flops_with_and_without_masked_scores(benchmark, case):
    sent = []
    Prepared(benchmark, [case], set(), "cpu", 1, lambda *message: sent.append(message)).prepare()
    (columns,) = [columns for kind, *_, columns in sent if kind == "ready"]
    n = CELL["seq_len"]
    assert columns["full_flops"] * (n + 1) == columns["flops"] * 2 * n


def test_case_with_a_row_for_each_of_its_phases_is_complete(benchmark, case):
    one = Assignment("worker", case)
    cases = AssignedCases(None, None, benchmark, [one], {}, 1)
    assert cases._pending("worker")
    cases.rows[one, "forward"] = [{}]
    assert not cases._pending("worker")


def test_no_row_is_missing_for_a_phase_that_a_case_lacks(benchmark, case):
    assert [row["phase"] for row in _lacking(benchmark, [case], [])] == ["forward"]
