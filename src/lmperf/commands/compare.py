"""`lmperf compare`: time two versions of the code, interleaved."""

from __future__ import annotations

import click

from lmperf.commands.diff import comparison_options, print_comparison
from lmperf.commands.options import implementations_option, of_project, phases_option, say
from lmperf.evidence.project import Project


@click.command(short_help="Time two versions of the code, interleaved.")
@click.argument("old", default="HEAD")
@click.argument("new", required=False)
@implementations_option
@phases_option
@comparison_options
@of_project
def compare(
    project: Project,
    old: str,
    new: str | None,
    implementations,
    phases,
    only,
    benchmarks,
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
    from lmperf.evidence.wanted import Wanted

    wanted = Wanted(benchmarks, only, implementations, phases)
    comparison = compare_versions(project, old, new, wanted, at_least / 100)
    if comparison is None:
        say("the code of no benchmark differs; choose one with --benchmark to time it anyway")
        return 0
    return print_comparison(comparison, format)
