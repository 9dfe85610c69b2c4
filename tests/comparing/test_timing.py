"""Tests of the rows of two versions of the code that are timed in turn."""

import pytest

from lmperf.benchmarks import load
from lmperf.comparing.timing import NEW, OLD, time_versions
from lmperf.comparing.versions import working_tree
from lmperf.evidence.plan import Plan
from lmperf.measuring.progress import Progress


@pytest.fixture
def timed():
    """Time cells of attention in this version and itself; return side -> rows, and the lines."""
    benchmark = load("attention", {"mine": "builtins:max"})
    benchmark.phases = ("forward",)
    cases = [case for case in benchmark.cases("cpu") if case.axes["dtype"] == "float32"]
    smallest = min(cases, key=lambda case: case.axes["seq_len"] * case.axes["d_head"]).cell

    def run(names):
        chosen = [case for case in cases if case.cell == smallest and case.implementation in names]
        lines: list[str] = []
        versions = dict.fromkeys((OLD, NEW), working_tree())
        progress = Progress("compare", len(chosen), lines.append)
        plan = Plan(benchmark, tuple(chosen), None, None)
        found = time_versions("cpu", versions, [plan], progress)
        return {side: of["attention"] for side, of in found.items()}, lines

    return run


@pytest.mark.process
def test_rows_are_paired_and_a_crash_costs_its_own_case(timed):
    found, lines = timed(["mine", "eager"])
    for side in (OLD, NEW):
        statuses = {row["implementation"]: row["status"] for row in found[side]}
        assert statuses == {"mine": "crash", "eager": "ok"}
    old, new = (next(r for r in found[side] if r["status"] == "ok") for side in (OLD, NEW))
    assert old["together"] == new["together"]
    assert old["rounds_ms"].count(";") == new["rounds_ms"].count(";") >= 5
    assert old["peak_mib"] > 0 and old["max_error"] <= old["error_bound"]
    assert "forward" in lines[-1] and " -> " in lines[-1]
