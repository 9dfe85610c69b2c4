"""Print this machine's name (`machine`), look up a cluster's node (`detect`), prune old rows."""

from __future__ import annotations

from pathlib import Path

import click

from lmperf.commands.options import MACHINE, Settings, config_option, of_project
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


@click.command(short_help="Look up the hardware of this node for a cluster's workflow.")
@config_option()
@click.pass_obj
def detect(settings: Settings, overrides):
    """Look up the hardware of this node, as that of its SLURM partition. The workflow's target
    `detect` does this in a job of the cluster; another way is `srun --partition=h100 --gpus=1`.

    \b
    Example:
      lmperf detect --config partition=h100
    """
    from lmperf.evidence.nodes import record_node

    print(record_node(settings.config(overrides), Path()))


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
