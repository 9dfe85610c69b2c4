"""`lmperf diff`: two results that were measured apart."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from lmperf.commands.options import PERCENT, only_option

FORMATS = ("text", "markdown", "json", "csv")


def comparison_options(command: Callable) -> Callable:
    """Which rows are compared, from which difference on, and how it is written."""
    for option in (
        click.option(
            "--format", type=click.Choice(("text", "markdown", "json", "csv")), default="text"
        ),
        click.option(
            "--at-least",
            type=PERCENT,
            default=2.0,
            show_default=True,
            metavar="PERCENT",
            help="The least difference that counts; no less than 1.",
        ),
        click.option("--benchmark", "benchmarks", multiple=True, metavar="STEM"),
        only_option,
    ):
        command = option(command)
    return command


@click.command(short_help="What changed from one result to another, worst first.")
@click.argument("old")
@click.argument("new")
@comparison_options
def diff(old: str, new: str, only, benchmarks, at_least: float, format: str) -> int:
    """Name what changed from OLD to NEW, row by row, worst first: each a directory of a machine's
    evidence, MACHINE, or MACHINE@REV.

    \b
    Example:
      lmperf diff nvidia-h200@HEAD nvidia-h200
    """
    from lmperf.reporting.diff.comparison import compare
    from lmperf.reporting.diff.forms import FORMS
    from lmperf.reporting.diff.results import read_result

    before, after = read_result(old), read_result(new)
    found = compare(before, after, at_least / 100, only, benchmarks)
    sys.stdout.write(FORMS[format](found))
    return 1 if found.regressions else 0
