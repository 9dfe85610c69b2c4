"""`lmperf list`: prints benchmarks and cases, and which of them a run would measure and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from lmperf.benchmark import Case
from lmperf.commands.options import of_project, stem_argument
from lmperf.evidence.changes import Changes
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import STEM
from lmperf.machine.repository import lmperf_version


@click.command("list", short_help="List benchmarks and cases, what is due, and why.")
@stem_argument(required=False)
@click.option("--due", is_flag=True, help="Only the cases that a run would measure.")
@of_project
def list_(project: Project, stem: str | None, due: bool):
    """List each benchmark with what a run would measure of it and why. With STEM, list every case
    of that benchmark.

    A case is stale if its code, the method or the environment has changed since it was measured;
    the changed code is named.

    \b
    Example:
      lmperf list attention --due
    """
    plans = [*project.plans.values()] if stem is None else [project.plan(stem)]
    quick = ", quick" if project.is_quick else ""
    print(f"machine {project.machine.slug}, preset {project.preset}{quick}")
    if upgraded := _upgraded(project, plans):
        print(upgraded)
    for plan in plans:
        print(f"{plan.stem}: {plan.summary}")
        if plan.ahead:
            print(f"  {plan.ahead}")
        changes = Changes(project, plan)
        if stem or due:
            _print_cases(plan, changes, due)
            continue
        reasons = Counter(_reason(plan, changes, case) for case in plan.due)
        for reason, number in reasons.most_common():
            if reason != "missing":
                print(f"  {number} {reason}")
    if stem is None and project.repeats_rows:
        print(f"{STEM}: {project.repeats.summary}")


def _upgraded(project: Project, plans: Sequence[Plan]) -> str:
    """How much of the evidence another version of lmperf has made stale; "" with the same one."""
    environments = project.known_facts()["environments"]
    then = environments.get(project.machine.environment, {}).get("lmperf")
    now = lmperf_version(project.root)
    if then is None or then == now:
        return ""
    whys = [why for plan in plans for why in plan.due.values()]
    measured = sum(len(plan.chosen) for plan in plans) - whys.count("missing")
    stale = f"{whys.count('stale')} of {measured} measured cases are stale"
    return f"measured with lmperf {then}, this is {now}: {stale}"


def _print_cases(plan: Plan, changes: Changes, due: bool) -> None:
    grouped = {case: "with its group" for group in plan.groups for case in group}
    reasons = grouped | {case: _reason(plan, changes, case) for case in plan.due}
    for case in reasons if due else plan.chosen:
        print(f"  {case.name}: {reasons.get(case, 'fresh')}")


def _reason(plan: Plan, changes: Changes, case: Case) -> str:
    why = plan.due[case]
    row = plan.stale_row(case) if why == "stale" else None
    return f"{why}, {changes.of(row)}" if row else why
