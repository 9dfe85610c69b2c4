"""`lmperf verify` checks evidence and its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from lmperf.commands.options import MACHINE, of_project, say
from lmperf.commands.report import not_rendered
from lmperf.evidence.facts import FILE
from lmperf.evidence.project import Project

allow_option = click.option(
    "--allow-marked",
    "reason",
    metavar="REASON",
    help="Accept rows that were measured while the machine was at work. The write-up shows REASON.",
)


@click.command(short_help="Fail, with the causes, unless evidence is complete, fresh and right.")
@click.argument("machines", nargs=-1, type=MACHINE, metavar="[MACHINE]...")
@click.option("--all", "every", is_flag=True, help="Every machine that has evidence.")
@click.option("--verbose", is_flag=True, help="Print a line for each row.")
@allow_option
@of_project
def verify(
    project: Project, machines: tuple[str, ...], every: bool, verbose: bool, reason: str | None
) -> int:
    """Exit with 1 and print the causes unless the evidence of MACHINE is complete, fresh and right,
    and its pages and figures are what the evidence renders to. The default is this machine.

    \b
    Example:
      lmperf verify nvidia-h200 --verbose
    """
    if every and machines:
        raise click.UsageError("--all verifies every machine; do not name one as well")
    wanted = [*machines] or [project.machine.slug]
    if every:
        wanted = project.machines_with_evidence()
    if reason is not None:
        allow_marked(project, wanted, reason)
    return 1 if print_causes(project, wanted, verbose) else 0


def print_causes(
    project: Project, machines: Sequence[str], verbose: bool, allowed: bool = False
) -> int:
    """Print why machines fail `verify`, what else is worth knowing, and the verdict.

    Returns the number of causes. allowed: whether rows that are not right are no cause, since they
    are published all the same.
    """
    from lmperf.evidence.review import causes, information
    from lmperf.evidence.reviewed import OF_ROWS
    from lmperf.reporting import written

    found = [cause for machine in machines for cause in causes(project, machine)]
    if allowed:
        found = [cause for cause in found if cause.kind not in OF_ROWS]
    lines = [line for cause in found for line in (cause.lines if verbose else [str(cause)])]
    known = [machine for machine in machines if machine in project.machines_with_evidence()]
    for machine in known:
        lines += not_rendered(project, machine)
        strangers = written.foreign(project, machine)
        lines += [f"{path}: lmperf did not write it; remove it" for path in strangers]
    for line in lines:
        print(f"verify: {line}", file=sys.stderr)
    for cause in (cause for machine in known for cause in information(project, machine)):
        for line in cause.lines if verbose else [str(cause)]:
            print(f"verify: {line}")  # no fault
    words = ", ".join(machines) or "no machine"
    right = "nothing else is wrong" if allowed else "all is measured and right"
    number = "1 cause" if len(lines) == 1 else f"{len(lines)} causes"
    print(f"verify: {words}: {number if lines else right}")
    return len(lines)


def allow_marked(project: Project, machines: Sequence[str], reason: str) -> None:
    """Record why rows that were measured at work are accepted, and render the write-ups again."""
    from lmperf.commands.report import render
    from lmperf.evidence.at_work import allow, check_reason
    from lmperf.evidence.review import review

    reason = check_reason("--allow-marked", reason)
    for machine in machines:
        found = review(project, machine).at_work
        if not found.too_many:
            say(f"{machine}: too few rows were measured at work to need --allow-marked")
            continue
        directory = project.report_directory / machine
        allow(directory, machine, found, reason)
        say(f"{directory / FILE}: says that {found.words}, and why they are accepted")
        render(project, machine)
        if project.is_here(machine):
            render(project, None)
