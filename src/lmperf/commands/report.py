"""`lmperf report` renders a write-up, and says what is wrong with its evidence."""

from __future__ import annotations

import click

from lmperf.commands.options import force_option, of_project, say_misnamed, say_replaced
from lmperf.config import slug
from lmperf.evidence.project import Project


@click.command(short_help="Render the write-up of measured evidence.")
@click.argument("machine", required=False, type=slug)
@force_option
@of_project
def report(project: Project, machine: str | None, force: bool):
    """Render the write-up of MACHINE from its evidence; without MACHINE, render report/report.md
    for this machine, and the pages that it links to.

    Rendering never waits for a measurement. It replaces and removes only files that lmperf wrote,
    which .lmperf-files beside them lists.

    \b
    Example:
      lmperf report nvidia-h200
    """
    render(project, machine, force)
    say_where(project, machine)


def render(project: Project, machine: str | None, force: bool = False) -> None:
    """Render the write-up of a machine, or the overview, and note that it is current.

    The overview links to the pages of this machine and to the write-ups of the others: those of
    this machine that are out of date, and those of others that are missing, are rendered as well.
    """
    from lmperf.reporting import report, written

    machines = [machine] if machine is not None else [*_out_of_date(project), None]
    say_replaced(report.render(project, machines, force))
    for one in machines:
        written.record(project, one)


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
    say_misnamed(project)
    print(f"{target(project, machine)}: the write-up of {whose}")
    if whose not in project.machines_with_evidence():
        print(f"  {whose} has not been measured")
        return
    for line in tally(causes(project, review(project, whose))):
        print(f"  {line}")
