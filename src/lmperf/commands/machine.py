"""`lmperf machine` and `lmperf prune`: whose evidence is which, and what of it nobody asks for."""

from __future__ import annotations

import click

from lmperf.commands.options import MACHINE, of_project
from lmperf.evidence.plan import Project


@click.command(short_help="The name of this machine.")
@of_project
def machine(project: Project):
    """Print the name of this machine, below which its evidence lies in report/.

    \b
    Example:
      ls report/$(lmperf machine)
    """
    print(project.machine.slug)


@click.command(short_help="Drop stale rows of cells that the grid no longer has.")
@click.argument("machine", type=MACHINE)
@of_project
def prune(project: Project, machine: str):
    """Drop the stale rows of MACHINE's cells that the grid no longer has; nothing would measure
    them again.

    \b
    Example:
      lmperf prune nvidia-h200
    """
    from lmperf.evidence import review

    dropped = review.prune(project, machine)
    print(f"{project.report_directory / machine}: {dropped} stale rows dropped")
