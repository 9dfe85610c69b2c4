"""`lmperf report` and `lmperf summary`: the write-up, and what is wrong with its evidence."""

from __future__ import annotations

import click

from lmperf.commands.options import MACHINE, of_project, say
from lmperf.evidence.plan import Project


@click.command(short_help="Write up what was measured.")
@click.argument("machine", required=False, type=MACHINE)
@of_project
def report(project: Project, machine: str | None):
    """Write up the evidence of MACHINE; without it report/report.md, of the machine at hand.

    \b
    Example:
      lmperf report nvidia-h200
    """
    from lmperf.measuring.lock import machine_lock
    from lmperf.reporting import written
    from lmperf.reporting.render import render_machine, render_overview

    with machine_lock(say):  # rendering is load beside a measurement
        if machine is None:
            render_overview(project)
        else:
            render_machine(project, machine)
        written.record(project, machine)
    _say_where(project, machine)


@click.command(short_help="Where the write-up is, and what is wrong with its evidence.")
@click.argument("machine", required=False, type=MACHINE)
@click.option("--current", is_flag=True, help="Fail unless it is what its evidence renders to.")
@of_project
def summary(project: Project, machine: str | None, current: bool) -> int:
    """Name the write-up of MACHINE, or that of the machine at hand, and what is wrong with its
    evidence.

    \b
    Example:
      lmperf summary --current
    """
    _say_where(project, machine)
    faults = not_rendered(project, machine) if current else []
    for words in faults:
        say(words)
    return 1 if faults else 0


def not_rendered(project: Project, machine: str | None) -> list[str]:
    """The files of a write-up that are not what its evidence renders to, with what that means."""
    from lmperf.reporting.render import edited
    from lmperf.reporting.written import target

    folder = target(project, machine).parent
    words = "is not what its evidence renders to: edited, or of before"
    return [f"{folder / name}: {words}" for name in edited(project, machine)]


def _say_where(project: Project, machine: str | None) -> None:
    """Name the file to open, and what is wrong with its evidence, a line for each kind."""
    from lmperf.evidence.review import causes, tally
    from lmperf.reporting.written import target

    whose = machine or project.machine.slug
    path = target(project, machine)
    print(f"{path}: the write-up of {whose}" if path.exists() else f"{path}: not written yet")
    if whose not in project.machines_with_evidence():
        print(f"  {whose} has not been measured")
        return
    for line in tally(causes(project, whose)):
        print(f"  {line}")
