"""Tests of the cases that a run measures, the reasons, and the causes that `verify` lists."""

from lmperf.benchmarks import load
from lmperf.evidence.plan import Plan, evidence_of
from lmperf.evidence.review import tally
from lmperf.evidence.reviewed import Cause

GRID = {"batch": [2], "d_head": [16], "dtype": ["float32"], "causal": [False]}


def plan(directory, *seq_lens):
    benchmark = load("attention")
    names = {"implementation": ["eager", "compiled"]}
    cases = benchmark.cases("cpu", {**GRID, **names, "seq_len": list(seq_lens)})
    files = (evidence_of(benchmark, directory, folder) for folder in ("store", "evidence"))
    return Plan(benchmark, tuple(cases), *files, "environment", "cpu")


def measured(plan, case, key=None):
    columns = [
        {**case.axes, "implementation": case.implementation, "phase": phase}
        for phase in plan.benchmark.phases
    ]
    where = {"environment": "e" * 16, "measured_at": "2026-01-02T03:04:05+00:00"}
    about = {"status": "unsupported", "reason": "not here", "seed": 1, "commit": "0123abc", **where}
    return [{**row, **about, "key": key or plan.key(row)} for row in columns]


def test_stale_case_is_due_with_its_whole_group(tmp_path):
    first = plan(tmp_path, 32)
    eager, compiled = first.cases
    first.store.replace([*measured(first, eager), *measured(first, compiled, "0" * 16)])
    again = plan(tmp_path, 32, 64)
    assert [why for _, why in again.due] == ["with its group", "stale", "missing", "missing"]
    assert again.summary == "4 of 4 cases to measure (2 missing, 1 stale, 1 with its group)"


def test_nothing_is_due_when_every_row_is_fresh(tmp_path):
    first = plan(tmp_path, 32)
    first.store.replace([row for case in first.cases for row in measured(first, case)])
    written = plan(tmp_path, 32)
    assert written.is_due and written.due == []
    written.evidence.hold(written.rows)
    again = plan(tmp_path, 32)
    assert not again.is_due and again.due == [] and again.summary == "0 of 2 cases to measure"


def test_all_cases_of_damaged_file_are_due(tmp_path):
    first = plan(tmp_path, 32)
    first.store.replace([row for case in first.cases for row in measured(first, case)])
    path = first.store.path
    path.write_text(path.read_text().replace("float32", "float64"))
    assert {why for _, why in plan(tmp_path, 32).due} == {"damaged"}


def test_tally_sums_rows_by_kind_of_fault():
    many = Cause("here", "attention", "stale", ("a", "b"))
    one = Cause("here", "memory", "stale", ("c",))
    red = Cause("here", "memory", "red gate", ("d",))
    assert str(many) == "here/attention: stale: 2 rows, the first a"
    assert str(one) == "here/memory: stale: c"
    assert many.lines == ["here/attention: stale: a", "here/attention: stale: b"]
    assert tally([many, one, red]) == ["stale: 3 (attention 2, memory 1)", "red gate: 1 (memory 1)"]


def test_rows_of_a_phase_that_a_case_lacks_do_not_count(tmp_path):
    first = plan(tmp_path, 32)
    eager, compiled = first.cases
    first.store.replace([*measured(first, eager), *measured(first, compiled)])
    fewer = plan(tmp_path, 32)
    fewer.benchmark.phases_of = lambda case: (
        ("forward",) if case == eager else first.benchmark.phases
    )
    assert len(fewer.rows) == 1 + len(first.benchmark.phases)
    assert fewer.due == []
