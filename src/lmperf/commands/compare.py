"""`lmperf compare`: time two versions of the code, interleaved."""

from __future__ import annotations

import click

from lmperf.commands.diff import comparison_options, print_comparison
from lmperf.commands.options import (
    implementations_option,
    of_project,
    phases_option,
    say,
)
from lmperf.errors import UserError
from lmperf.evidence.project import Project


@click.command(short_help="Time two versions of the code, interleaved.")
@click.argument("revisions", nargs=-1, metavar="[REV [REV]]")
@implementations_option
@phases_option
@comparison_options
@of_project
def compare(
    project: Project,
    revisions: tuple[str, ...],
    implementations,
    phases,
    only,
    benchmarks,
    at_least: float,
    format: str,
) -> int:
    """Time two versions of the code, interleaved, and store nothing. Compares the working tree with
    HEAD, the working tree with REV, or one REV with another. A REV is a Git revision or a directory
    that contains src/lmperf, or in your own repository config/config.yaml. A difference is reported
    only if new processes show it again.

    \b
    Example:
      lmperf compare main --benchmark lrpe --only shape=1024,32x32
    """
    from lmperf.comparing.run import compare_versions
    from lmperf.evidence.wanted import Wanted

    if len(revisions) > 2:
        raise UserError("give two revisions at most")
    wanted = Wanted(benchmarks, only, implementations, phases)
    found = compare_versions(project, revisions, wanted, at_least / 100)
    if found is None:
        say("the code of no benchmark differs; choose one with --benchmark to time it anyway")
        return 0
    return print_comparison(found, format)
