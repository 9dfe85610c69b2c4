"""Compares two versions of the code: checks them out, times them, returns verdicts.

A case that is faster or slower is timed ``CONFIRMATIONS`` times more in new processes, and is
unresolved unless it differs in the same direction each time: two processes of the same code can
differ by more than their intervals. Differences are rare, so this is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from lmperf.benchmark import Case
from lmperf.comparing.timing import NEW, OLD, Row, time_versions
from lmperf.comparing.versions import Codes, Version, version, working_tree
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.rows import as_read
from lmperf.evidence.store import text_of
from lmperf.evidence.wanted import Wanted, beyond_the_grid, select, timed_plans
from lmperf.measuring.progress import Progress
from lmperf.names import size_words
from lmperf.reporting.comparison import Comparison, compare
from lmperf.reporting.evidence import Evidence
from lmperf.statistics import FASTER, SLOWER

# How often a difference is measured again in new processes before it is reported.
CONFIRMATIONS = 2


def compare_versions(
    project: Project,
    old: str,
    new: str | None,
    benchmarks: Sequence[str],
    wanted: Wanted,
    at_least: float,
) -> Comparison | None:
    """Time two versions of the code, interleaved. Nothing is stored as evidence.

    Returns None if no benchmark is named and no benchmark's code differs.

    Args:
        old: a Git revision or a directory.
        new: the same; None: the working tree.
        benchmarks: stems; if empty, those whose code differs between the versions.
        at_least: the smallest difference of times that counts as a change, as a fraction.

    Raises:
        UserError: a version, benchmark or cell does not exist or cannot be compared.
    """
    project.require_torch()
    plans = timed_plans(project, benchmarks)
    if len(benchmarks) == 1:
        plans = [beyond_the_grid(project, plans[0], wanted)]
    select(plans, wanted)  # a wrong axis is named before versions are read
    with ExitStack() as stack:
        before = stack.enter_context(version(old))
        after = stack.enter_context(version(new)) if new else working_tree()
        was, now = before.codes(plans), after.codes(plans)
        if not benchmarks:
            plans = [plan for plan in plans if was[plan.stem] != now[plan.stem]]
            if not plans:
                return None
        chosen = select(plans, wanted)

        def measure(chosen: Sequence[Plan]) -> list[Evidence]:
            total = sum(len(plan.cases) for plan in chosen)
            progress = Progress("compare", total)
            rows = time_versions(project.machine.kind, {OLD: before, NEW: after}, chosen, progress)
            both = (OLD, before, was), (NEW, after, now)
            return [_result(project, *version, rows[side]) for side, *version in both]

        return confirmed(measure, chosen, at_least)


def confirmed(
    measure: Callable[[Sequence[Plan]], Sequence[Evidence]],
    chosen: Sequence[Plan],
    at_least: float,
) -> Comparison:
    """Compare two versions, and measure the cases that differ again: see the module.

    measure: times cases in new processes, and returns the results of the old and the new version.
    """
    comparison = compare(*measure(chosen), at_least, in_turn=True)
    for _ in range(CONFIRMATIONS):
        again = _differing(comparison, chosen)
        if not again:
            break
        second = compare(*measure(again), at_least, in_turn=True)
        comparison = comparison.confirmed_by(second)
    return comparison


def _differing(comparison: Comparison, chosen: Sequence[Plan]) -> list[Plan]:
    """The chosen cases that have a row that is faster or slower."""
    rows = comparison.rows[comparison.rows["verdict"].isin((FASTER, SLOWER))]
    named = {
        (stem, tuple(sorted(axes.items())), implementation)
        for stem, axes, implementation in rows[["benchmark", "axes", "implementation"]].to_numpy()
    }

    def differs(plan: Plan, case: Case) -> bool:
        texts = ((name, size_words(str(value))) for name, value in case.cell)
        axes = tuple(sorted((name, text) for name, text in texts if text))
        return (plan.stem, axes, case.implementation) in named

    kept = [replace(p, cases=tuple(c for c in p.cases if differs(p, c))) for p in chosen]
    return [plan for plan in kept if plan.cases]


def _result(
    project: Project, version: Version, codes: Codes, rows: Mapping[str, Sequence[Row]]
) -> Evidence:
    """The rows of a version as evidence.

    rows: stem of a benchmark -> rows. codes: digests of the implementations' code, which become
    the keys of the rows.
    """
    machine, environment = project.machine, project.machine.environment
    facts = {"machine": machine.slug, "environments": {environment: machine.facts}}
    more, raw = {"environment": environment, "commit": version.commit}, {}
    for stem, timed in rows.items():
        wholes = ({**row, **more, "key": codes[stem][row["implementation"]]} for row in timed)
        raw[stem] = [as_read({name: text_of(row[name]) for name in row}) for row in wholes]
    return Evidence(version.name, facts, raw)
