"""Which cases a run measures, and why."""

from dataclasses import replace

from lmperf.benchmarks import load
from lmperf.evidence.machine import Machine
from lmperf.evidence.plan import Plan
from lmperf.evidence.rows import FAILURES, LOADED
from lmperf.evidence.store import files_of

HERE = Machine("here", "cpu", {"kind": "cpu"})
GRID = {"batch": [2], "d_head": [16], "dtype": ["float32"], "causal": [False]}
KERNELS = {**GRID, "implementation": ["eager", "compiled"]}
STEPS = {"size": ["tiny"], "batch": [1], "dtype": ["float32"], "implementation": ["eager", "sdpa"]}
ABOUT = {"status": "unsupported", "reason": "not here", "environment": "e" * 16}


def plan_of(directory, stem, **grid):
    benchmark = load(stem)
    cases = benchmark.cases("cpu", grid)
    return Plan(benchmark, tuple(cases), files_of(benchmark, directory), HERE)


def kernels(directory, *seq_lens):
    return plan_of(directory, "attention", **KERNELS, seq_len=list(seq_lens))


def store(plan, *cases, at="2026-01-02T03:04:05+00:00", **columns):
    """Add rows of cases to the store; by default with today's keys."""
    for case in cases:
        rows = [
            {**case.axes, "implementation": case.implementation, "phase": phase, "seed": 1}
            for phase in plan.benchmark.phases_of(case)
        ]
        rows = [
            {**row, "key": plan.key(row), "measured_at": at, **ABOUT, **columns} for row in rows
        ]
        plan.files.append(rows)


def again(plan):
    return replace(plan)


def test_stale_kernel_is_due_with_its_group(tmp_path):
    first = kernels(tmp_path, 32)
    eager, compiled = first.cases
    store(first, eager)
    store(first, compiled, key="0" * 16)
    plan = kernels(tmp_path, 32, 64)
    assert [*plan.due.values()] == ["stale", "missing", "missing"]
    assert [len(group) for group in plan.groups] == [2, 2]
    assert plan.summary == "4 of 4 cases to measure (2 missing, 1 stale, 1 with their group)"
    assert plan.stale_row(compiled)["key"] == "0" * 16 and plan.stale_row(eager) is None


def test_stale_step_is_due_alone(tmp_path):
    plan = plan_of(tmp_path, "end_to_end", **STEPS, context_length=[64])
    assert len(plan.cases) == 2
    store(plan, *plan.cases[:1])
    plan = again(plan)
    assert plan.groups == [[plan.cases[1]]] and plan.due == {plan.cases[1]: "missing"}


def test_nothing_is_due_once_the_view_is_written(tmp_path):
    plan = kernels(tmp_path, 32)
    store(plan, *plan.cases)
    plan = again(plan)
    assert plan.is_due and not plan.due
    assert plan.summary == "0 of 2 cases to measure (its view must be written)"
    plan.files.publish(plan.rows)
    plan = again(plan)
    assert not plan.is_due and plan.summary == "0 of 2 cases to measure"


def test_case_without_one_of_its_phases_is_missing(tmp_path):
    plan = kernels(tmp_path, 32)
    store(plan, *plan.cases)
    path = tmp_path / "store/attention.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert [*again(plan).due.values()] == ["missing"]


def test_smaller_grid_drops_rows_from_the_view_only(tmp_path):
    wide = kernels(tmp_path, 32, 64)
    store(wide, *wide.cases)
    narrow = kernels(tmp_path, 32)
    assert len(narrow.rows) == len(narrow.files.known()[0]) / 2 and not narrow.due
    narrow.files.publish(narrow.rows)
    assert not again(wide).due


def test_failures_are_retried_on_request(tmp_path):
    plan = kernels(tmp_path, 32)
    store(plan, *plan.cases, status="timeout")
    assert not again(plan).due
    assert {*replace(plan, again=frozenset(FAILURES.values())).due.values()} == {"failed"}


def test_failed_row_beside_other_load_is_loaded_too(tmp_path):
    plan = kernels(tmp_path, 32)
    store(plan, *plan.cases, status="failed_check", marks="loaded")
    assert {*replace(plan, again=frozenset([LOADED])).due.values()} == {"loaded"}


def test_quick_run_measures_the_head_first_and_alone(tmp_path):
    plan = kernels(tmp_path, 32, 64)
    head = frozenset(plan.cases[2:])
    whole, quick = replace(plan, head=head), replace(plan, head=head, quick=True)
    assert [{*group} == head for group in whole.groups] == [True, False]
    assert len(quick.groups) == 1 and quick.summary.startswith("2 of 2 cases")
    store(plan, *plan.cases)
    quick = again(quick)
    assert not quick.groups and len(quick.rows) == len(again(plan).rows), "other rows are kept"
    assert replace(quick, forced=True).groups == [[*plan.cases[2:]]]


def test_rows_of_a_phase_that_a_case_lacks_do_not_count(tmp_path):
    plan = kernels(tmp_path, 32)
    store(plan, *plan.cases)
    fewer = kernels(tmp_path, 32)
    fewer.benchmark.phases_of = lambda case: ("forward",)
    assert len(fewer.rows) == len(fewer.cases) and not fewer.due


def test_ranks_need_gpus_and_their_links(tmp_path):
    plan = plan_of(tmp_path, "collectives")
    facts = {"kind": "cuda", "devices": 2, "links": {"0-1": "NV18"}}
    on_gpus = replace(plan, machine=Machine("two", "cuda", facts))
    assert (plan.gpus, on_gpus.gpus) == (1, 2)
    [case] = plan.cases[:1]
    row = {**case.axes, "implementation": case.implementation, "phase": "forward"}
    slow = replace(on_gpus, machine=Machine("two", "cuda", facts | {"links": {"0-1": "PHB"}}))
    assert on_gpus.key(row) != slow.key(row)
