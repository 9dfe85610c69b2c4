"""`lmperf selftest`: check that the pipeline detects faulty implementations."""

from __future__ import annotations

import sys
from collections import Counter

import click

from lmperf.commands.options import of_project
from lmperf.evidence.project import Project


@click.command(short_help="Check that the pipeline detects faulty implementations.")
@of_project
def selftest(project: Project) -> int:
    """Measure implementations that are wrong, fake or harmful, and check that each is detected.

    \b
    Example:
      lmperf selftest
    """
    from lmperf.reporting.selftest import HELD, NOT_HELD, NOT_RUN, read_selftest
    from lmperf.selftest.run import run, write

    project.require_torch()
    read_selftest(project.directory)  # refuses to replace another file
    lines = [*run(project)]
    answers = Counter(line["held"] for line in lines)
    for line in lines:
        if line["held"] == NOT_HELD:
            print(f"selftest: {line['case']}: {line['outcome']}", file=sys.stderr)
    counts = f"{answers[HELD]} held, {answers[NOT_HELD]} did not, {answers[NOT_RUN]} not run"
    print(f"{write(project, lines)}: {counts}; lmperf report shows them")
    return 1 if answers[NOT_HELD] else 0
