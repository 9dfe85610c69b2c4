"""`lmperf measure`: measure one benchmark. Each measuring job of the workflow runs this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from lmperf.commands.options import of_project, only_option, say, stem_argument
from lmperf.errors import UserError
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import STEM
from lmperf.evidence.rows import LOADED


@click.command(short_help="Measure the missing and stale cases of a benchmark.")
@stem_argument(type=None)
@only_option
@click.option("--force", is_flag=True, help="Measure every case, fresh ones as well.")
@click.option("--loaded", is_flag=True, help="Also rows that were timed beside other load.")
@click.option("--log", type=click.Path(path_type=Path), help="Append a line for each group.")
@click.option("--parent", type=int, metavar="PID", help="Stop when this process ends.")
@of_project
def measure(
    project: Project,
    stem: str,
    only: Sequence[tuple[str, str]],
    force: bool,
    loaded: bool,
    log: Path | None,
    parent: int | None,
):
    """Measure the missing and stale cases of a benchmark, and write its evidence. With the name
    `repeatability`, measure some rows of all benchmarks a second time, in a new process.

    Kernels that are compared are timed interleaved, as a group. So --only measures whole groups:
    each that has one of the selected cases, unless all cases of the group are fresh.

    \b
    Examples:
      lmperf measure attention --loaded
      lmperf measure attention --only d_head=64,dtype=float32
    """
    from lmperf.evidence.record import record, repeat
    from lmperf.evidence.wanted import Wanted, select
    from lmperf.measuring.processes import die_with

    if parent is not None:
        die_with(parent)
    if problem := project.commit_facts()[1]:
        say(f"the commit is not recorded: {problem}; or name it in LMPERF_COMMIT")
    try:
        if stem == STEM:
            repeat(project, log)
            return
        plan = plan_of(project, stem)
        again = plan.again | ({LOADED} if loaded else frozenset())
        plan = replace(plan, again=again, forced=force)
        cases = None
        if only:
            [selected] = select([replace(plan, cases=tuple(plan.chosen))], Wanted(only=only))
            cases = selected.cases
        record(project, plan, cases, log)
    except KeyboardInterrupt:
        say("interrupted; what was measured is stored, and the same command goes on from there")
        raise
    print(plan.files.path)


def plan_of(project: Project, stem: str) -> Plan:
    """The plan of a benchmark: which cases to measure.

    Raises:
        UserError: torch is missing, or the configuration or the preset leaves the benchmark out.
    """
    project.require_torch()
    plan = project.plan(stem) if stem in project.stems else None
    if plan is None or not plan.chosen:
        raise UserError(
            f"{stem} is not measured on this machine: the configuration's benchmarks or the preset"
            f" {project.preset} exclude it; choose one of: {', '.join(project.plans)}"
        )
    return plan
