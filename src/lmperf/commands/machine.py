"""`lmperf machine` prints this machine's name; `lmperf prune` removes stale rows of old cells."""

from __future__ import annotations

import click

from lmperf.commands.options import MACHINE, of_project
from lmperf.evidence.project import Project


@click.command(short_help="Print the name of this machine.")
@of_project
def machine(project: Project):
    """Print the name of this machine; its evidence is in report/NAME.

    \b
    Example:
      ls report/$(lmperf machine)
    """
    print(project.machine.slug)


@click.command(short_help="Remove stale rows of cells that left the grid.")
@click.argument("machine", type=MACHINE)
@of_project
def prune(project: Project, machine: str):
    """Remove MACHINE's stale rows of cells that are no longer in the grid. No run would measure
    them again.

    \b
    Example:
      lmperf prune nvidia-h200
    """
    from lmperf.evidence import review

    dropped = review.prune(project, machine)
    print(f"{project.report_directory / machine}: {dropped} stale rows removed")
