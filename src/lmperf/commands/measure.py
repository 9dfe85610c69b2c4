"""`lmperf measure`: measure one benchmark. Each measuring job of the workflow runs this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from lmperf.commands.options import (
    NAMES,
    Settings,
    config_option,
    gpus_option,
    interruption,
    only_option,
    say,
    stem_argument,
)
from lmperf.commands.remeasured import at_rest
from lmperf.errors import UserError
from lmperf.evidence.plan import FAILURES, Plan
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import Repeats


@click.command(short_help="Measure the missing and stale cases of a benchmark.")
@stem_argument()
@only_option
@click.option("--force", is_flag=True, help="Measure every case, fresh ones as well.")
@click.option(
    "--retry-failed",
    is_flag=True,
    help="Also retry crashes, time-outs, out-of-memory rows and failed checks.",
)
@click.option(
    "--marked",
    is_flag=True,
    help="Wait until the machine is at rest; also measure rows again that were timed at work.",
)
@click.option("--log", type=click.Path(path_type=Path), help="Append a line for each group.")
@click.option(
    "--also",
    type=NAMES,
    default=(),
    metavar="NAME,...",
    help="Other jobs of this run: the time left includes what is still due of them.",
)
@gpus_option
@click.option("--parent", type=int, metavar="PID", help="Stop when this process ends.")
@config_option()
@click.pass_obj
def measure(
    settings: Settings,
    stem: str,
    only: Sequence[tuple[str, str]],
    force: bool,
    retry_failed: bool,
    marked: bool,
    log: Path | None,
    also: Sequence[str],
    gpus: int | None,
    parent: int | None,
    overrides,
):
    """Measure the missing and stale cases of a benchmark, and write its evidence.

    Cases that are compared are timed interleaved, as a group. So --only measures whole groups: each
    that has one of the selected cases, unless all cases of the group are fresh.

    \b
    Examples:
      lmperf measure attention --marked
      lmperf measure attention --only d_head=64,dtype=float32
    """
    from lmperf.compiler import require_caches
    from lmperf.evidence.record import record
    from lmperf.evidence.wanted import Chosen, Wanted, select
    from lmperf.measuring.follow import die_with
    from lmperf.measuring.lock import machine_lock
    from lmperf.measuring.stopwatch import process_age

    require_caches()
    if parent is not None:
        die_with(parent)
    # Plan while holding the lock: another run may have measured some cases before.
    # The workflow says for its jobs that it was interrupted.
    with interruption(silent=parent is not None), machine_lock(say, gpus):
        project = settings.project(overrides)
        plan = plan_of(project, stem)
        if retry_failed:
            plan = replace(plan, again=FAILURES)
        if marked:
            plan = replace(plan, remeasure=True)
        plan = replace(plan, forced=frozenset(plan.cases if force else ()))
        groups = plan.pending
        if only:
            [chosen] = select([Chosen(plan.benchmark, plan.chosen)], Wanted(only=only))
            groups = [group for group in groups if not set(chosen.cases).isdisjoint(group)]
        later = [_job(project, other) for other in also]
        with at_rest(project, plan):
            record(project, plan, log, process_age(), groups, later=later)
    print(plan.evidence.path)


def _job(project: Project, name: str) -> Plan | Repeats:
    """What a job of the workflow measures; `name` is a benchmark or `repeatability`."""
    return project.repeats if name == project.repeats.stem else plan_of(project, name)


def plan_of(project: Project, stem: str) -> Plan:
    """The plan of a benchmark: which cases to measure.

    Raises:
        UserError: torch is missing, or the configuration or the preset leaves the benchmark out.
    """
    if not project.can_measure:
        raise UserError("cannot measure: torch is not installed; run lmperf doctor")
    if stem not in project.plans:
        raise UserError(
            f"{stem} is not measured on this machine: the configuration's benchmarks or the preset"
            f" {project.preset} exclude it; choose one of: {', '.join(project.plans)}"
        )
    return project.plans[stem]
