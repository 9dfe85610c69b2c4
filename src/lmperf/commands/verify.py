"""`lmperf verify`: check that evidence is complete, up to date and free of failures."""

from __future__ import annotations

import sys

import click

from lmperf.commands.options import MACHINE, of_project
from lmperf.commands.report import not_rendered
from lmperf.evidence.project import Project


@click.command(short_help="Fail, with the causes, unless evidence is complete, fresh and right.")
@click.argument("machines", nargs=-1, type=MACHINE, metavar="[MACHINE]...")
@click.option("--all", "every", is_flag=True, help="Every machine that has evidence.")
@click.option("--verbose", is_flag=True, help="Print a line for each row.")
@of_project
def verify(project: Project, machines: tuple[str, ...], every: bool, verbose: bool) -> int:
    """Exit with 1 and print the causes unless the evidence of MACHINE is complete, fresh and right.
    The default is this machine.

    \b
    Example:
      lmperf verify nvidia-h200 --verbose
    """
    from lmperf.evidence.review import causes, out_of_memory
    from lmperf.reporting.render import silent_gaps

    if every and machines:
        raise click.UsageError("--all verifies every machine; do not name one as well")
    wanted = [*machines] or [project.machine.slug]
    if every:
        wanted = project.machines_with_evidence()
    found = [cause for machine in wanted for cause in causes(project, machine)]
    lines = [line for cause in found for line in (cause.lines if verbose else [str(cause)])]
    known = [machine for machine in wanted if machine in project.machines_with_evidence()]
    lines += silent_gaps(project, known)
    lines += [words for machine in known for words in not_rendered(project, machine)]
    for line in lines:
        print(f"verify: {line}", file=sys.stderr)
    for cause in (cause for machine in known for cause in out_of_memory(project, machine)):
        print(f"verify: {cause}")  # a result rather than a fault
    words = ", ".join(wanted) or "no machine"
    print(f"verify: {words}: " + (f"{len(lines)} causes" if lines else "all is measured and right"))
    return 1 if lines else 0
