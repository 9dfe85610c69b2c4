"""`lmperf history`: what changed in a machine's evidence from commit to commit."""

from __future__ import annotations

import sys

import click

from lmperf.commands.diff import FORMATS
from lmperf.commands.options import BENCHMARK, MACHINE, PERCENT, Choice, of_project
from lmperf.errors import UserError
from lmperf.evidence.project import Project


@click.command(short_help="Show what changed from commit to commit, and why.")
@click.argument("machine", required=False, type=MACHINE)
@click.option("--format", type=Choice(FORMATS), default="text", show_default=True)
@click.option(
    "--at-least",
    type=PERCENT,
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Smallest change that counts; at least 1.",
)
@click.option(
    "--benchmark",
    "benchmarks",
    multiple=True,
    type=BENCHMARK,
    metavar="STEM",
    help="Only this benchmark; repeat for more.",
)
@of_project
def history(project: Project, machine: str | None, format: str, at_least: float, benchmarks):
    """Show what changed in the committed evidence of MACHINE (by default this machine) from commit
    to commit, newest first: only changes beyond the noise floor, each with what differs between the
    two measurements: code, torch, Triton, driver or clock.

    \b
    Example:
      lmperf history nvidia-h200 --benchmark flash_attention
    """
    from lmperf.reporting.history import as_text, in_format, steps

    whose = machine or project.machine.slug
    if whose not in project.machines_with_evidence():
        raise UserError(f"{whose} has no evidence in report/")
    found = steps(whose, project.root, at_least / 100, benchmarks)
    sys.stdout.write(as_text(found) if format == "text" else in_format(found, format))
