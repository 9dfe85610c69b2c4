"""`lmperf report` renders a write-up, and says what is wrong with its evidence."""

from __future__ import annotations

import click

from lmperf.commands.options import of_project
from lmperf.config import slug
from lmperf.evidence.project import Project


@click.command(short_help="Render the write-up of measured evidence.")
@click.argument("machine", required=False, type=slug)
@of_project
def report(project: Project, machine: str | None):
    """Render the write-up of MACHINE from its evidence; without MACHINE, render report/report.md
    for this machine, and the pages that it links to.

    Rendering never waits for a measurement.

    \b
    Example:
      lmperf report nvidia-h200
    """
    render(project, machine)
    say_where(project, machine)


def render(project: Project, machine: str | None) -> None:
    """Render the write-up of a machine, or the overview, and note that it is current.

    The overview links to the pages of this machine and to the write-ups of the others: those of
    this machine that are out of date, and those of others that are missing, are rendered first.
    """
    from lmperf.reporting import written
    from lmperf.reporting.report import render_machine, render_overview

    for one in [machine] if machine is not None else _out_of_date(project):
        render_machine(project, one)
        written.record(project, one)
    if machine is None:
        render_overview(project)
        written.record(project, None)


def _out_of_date(project: Project) -> list[str]:
    """This machine if its write-up is out of date, and others without a write-up."""
    from lmperf.reporting.written import is_current, target

    def is_due(machine: str) -> bool:
        if project.is_here(machine):
            return not is_current(project, machine)
        return not target(project, machine).exists()

    return [*filter(is_due, project.machines_with_evidence())]


def not_rendered(project: Project, machine: str) -> list[str]:
    """A message for each page and figure that is missing, was edited, or is out of date."""
    from lmperf.reporting.written import edited, target

    folder = target(project, machine).parent
    differs = "differs from what its evidence renders to: it was edited, or is out of date"
    missing = "has not been rendered; run lmperf report"
    paths = [folder / name for name in edited(project, machine)]
    return [f"{path}: {differs if path.exists() else missing}" for path in paths]


def say_where(project: Project, machine: str | None) -> None:
    """Print the path of the write-up, then a line for each kind of fault in its evidence."""
    from lmperf.evidence.review import causes, review, tally
    from lmperf.reporting.written import target

    whose = machine or project.machine.slug
    print(f"{target(project, machine)}: the write-up of {whose}")
    if whose not in project.machines_with_evidence():
        print(f"  {whose} has not been measured")
        return
    for line in tally(causes(project, review(project, whose))):
        print(f"  {line}")
