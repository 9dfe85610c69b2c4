"""`lmperf measure`: what a job of the DAG does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from lmperf.commands.options import Settings, config_option, say, stem_argument
from lmperf.errors import UserError
from lmperf.evidence.plan import FAILURES, Plan, Project


@click.command(short_help="Measure what is missing or stale of a benchmark.")
@stem_argument()
@click.option("--force", is_flag=True, help="All of it, whatever was measured before.")
@click.option(
    "--retry-failed", is_flag=True, help="And what crashed, hung or had too little memory."
)
@click.option("--log", type=click.Path(path_type=Path), help="A file that gets a line a group.")
@click.option("--parent", type=int, metavar="PID", help="End when that process ends.")
@config_option()
@click.pass_obj
def measure(
    settings: Settings,
    stem: str,
    force: bool,
    retry_failed: bool,
    log: Path | None,
    parent: int | None,
    overrides,
):
    """Measure what is missing or stale of a benchmark, and write its evidence.

    \b
    Example:
      lmperf measure attention --retry-failed
    """
    from lmperf.compiler import require_caches
    from lmperf.evidence.record import record
    from lmperf.measuring.follow import die_with
    from lmperf.measuring.lock import machine_lock
    from lmperf.measuring.stopwatch import process_age

    require_caches()
    if parent is not None:
        die_with(parent)
    # Before anything else: what another run has measured meanwhile need not be measured again.
    with machine_lock(say):
        project = settings.project(overrides)
        plan = plan_of(project, stem)
        if retry_failed:
            plan = replace(plan, again=FAILURES)
        record(
            project,
            replace(plan, forced=frozenset(plan.cases if force else ())),
            log,
            process_age(),
        )
    print(plan.evidence.path)


def plan_of(project: Project, stem: str) -> Plan:
    """The plan of a benchmark that the configuration asks for here.

    Raises:
        UserError: it does not.
    """
    if not project.can_measure:
        raise UserError("nothing can be measured here, since torch is not installed")
    if stem not in project.plans:
        raise UserError(
            f"{stem} is not measured here: the configuration's benchmarks, or the preset"
            f" {project.preset}, leave it out; there are: {', '.join(project.plans)}"
        )
    return project.plans[stem]
