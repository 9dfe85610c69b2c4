"""`lmperf diff`: compare two results that were measured at different times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmperf.commands.options import PERCENT, Settings, only_option, print_tables
from lmperf.errors import UserError

if TYPE_CHECKING:  # pandas is slow to import
    from lmperf.reporting.comparison import Comparison

FORMATS = ("text", "markdown", "json", "csv")


def comparison_options(command: Callable) -> Callable:
    """A decorator that adds the options that `diff` and `compare` share."""
    for option in (
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            default="text",
            show_default=True,
        ),
        click.option(
            "--at-least",
            type=PERCENT,
            default=2.0,
            show_default=True,
            metavar="PERCENT",
            help="Smallest difference that counts; at least 1.",
        ),
        click.option(
            "--benchmark",
            "benchmarks",
            multiple=True,
            metavar="STEM",
            help="Only this benchmark; repeat for more.",
        ),
    ):
        command = option(command)
    return command


@click.command(short_help="Show what changed between two results, worst first.")
@click.argument("old")
@click.argument("new")
@only_option
@comparison_options
@click.option("--numbers", is_flag=True, help="Which numbers that pages print have moved.")
@click.pass_obj
def diff(
    settings: Settings,
    old: str,
    new: str,
    only,
    benchmarks,
    at_least: float,
    format: str,
    numbers: bool,
) -> int:
    """Show what changed from OLD to NEW, row by row, worst first. Each of them is MACHINE,
    MACHINE@REV (its evidence in a Git revision), or a directory with the evidence of a machine.

    \b
    Example:
      lmperf diff nvidia-h200@HEAD nvidia-h200
    """
    from lmperf.reporting.comparison import compare
    from lmperf.reporting.numbers import changes
    from lmperf.reporting.revisions import numbers_of, read_result

    report = Path(settings.config(needs_file=False).report)
    if numbers:
        moved = changes(*(numbers_of(name, report) for name in (old, new)))
        print("\n".join(moved) if moved else "no printed number has moved")
        return 0
    before, after = read_result(old, report), read_result(new, report)
    comparison = compare(before, after, at_least / 100, only, benchmarks or None)
    if not comparison.shares_rows:
        raise UserError(f"{old} and {new} share none of the requested rows")
    return print_comparison(comparison, format)


def print_comparison(comparison: Comparison, format: str) -> int:
    """Print a comparison; returns the exit code, 1 for a regression."""
    from lmperf.reporting.comparison_forms import FORMS

    printing = print_tables if format == "text" else partial(print, end="")
    printing(FORMS[format](comparison))
    return 1 if comparison.regressions else 0
