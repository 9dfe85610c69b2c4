"""`lmperf compare`: time two versions of the code, interleaved."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lmperf.commands.diff import comparison_options, print_comparison
from lmperf.commands.options import of_project, say, wanted_options
from lmperf.evidence.project import Project
from lmperf.evidence.wanted import Wanted


@click.command(short_help="Time two versions of the code, interleaved.")
@click.argument("old", default="HEAD")
@click.argument("new", required=False)
@wanted_options
@comparison_options
@of_project
def compare(
    project: Project,
    old: str,
    new: str | None,
    wanted: Wanted,
    benchmarks: Sequence[str],
    at_least: float,
    format: str,
) -> int:
    """Time two versions of the code, interleaved, and store nothing. OLD is HEAD by default, and
    NEW the working tree. A version is a Git revision or a directory that contains src/lmperf, or in
    your own repository config/config.yaml. A difference is reported only if new processes show it
    again.

    \b
    Example:
      lmperf compare main --benchmark lrpe --only shape=1024,32x32
    """
    from lmperf.comparing.run import compare_versions

    comparison = compare_versions(project, old, new, benchmarks, wanted, at_least / 100)
    if comparison is None:
        say("the code of no benchmark differs; choose one with --benchmark to time it anyway")
        return 0
    return print_comparison(comparison, format)
