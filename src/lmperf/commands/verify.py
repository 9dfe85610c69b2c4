"""`lmperf verify` checks evidence and its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from lmperf.commands.options import of_project, say_misnamed
from lmperf.commands.report import not_rendered
from lmperf.config.machine_names import slug
from lmperf.evidence.project import Project


@click.command(short_help="Fail, with the causes, unless evidence is complete, fresh and right.")
@click.argument("machines", nargs=-1, type=slug, metavar="[MACHINE]...")
@click.option("--all", "every", is_flag=True, help="Every machine that has evidence.")
@click.option("--verbose", is_flag=True, help="Print a line for each row.")
@of_project
def verify(project: Project, machines: tuple[str, ...], every: bool, verbose: bool) -> int:
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
        say_misnamed(project)
        wanted = project.machines_with_evidence()
    return 1 if print_causes(project, wanted, verbose) else 0


def print_causes(project: Project, machines: Sequence[str], verbose: bool = False) -> int:
    """Print why machines fail `verify`, what else is worth knowing, and the verdict.

    Rows that are not right are no cause where they are published all the same (`is_allowed`).
    Returns the number of causes.
    """
    from lmperf.evidence.review import OF_ROWS, causes, review
    from lmperf.evidence.rows import OOM

    lines, allowed = [], False
    for machine in machines:
        if project.is_here(machine) and machine not in project.machines_with_evidence():
            lines.append(f"{machine}/evidence: missing: this machine has not been measured")
            continue
        reviewed = review(project, machine)
        wrong = causes(project, reviewed)
        lines += _reformatted(project, machine)
        if not reviewed.damaged:
            lines += not_rendered(project, machine)
        for cause in reviewed.of_kinds([OOM]):
            for line in cause.lines if verbose else [str(cause)]:
                print(f"verify: {line}")  # no fault
        if reviewed.is_allowed:
            allowed = True
            wrong = [cause for cause in wrong if cause.kind not in OF_ROWS]
        lines += [line for cause in wrong for line in (cause.lines if verbose else [str(cause)])]
    for line in lines:
        print(f"verify: {line}", file=sys.stderr)
    words = ", ".join(machines) or "no machine"
    right = "nothing else is wrong" if allowed else "all is measured and right"
    number = "1 cause" if len(lines) == 1 else f"{len(lines)} causes"
    print(f"verify: {words}: {number if lines else right}")
    return len(lines)


def _reformatted(project: Project, machine: str) -> list[str]:
    """A line if Git or an editor changed line endings; numbers and words are what they were."""
    from lmperf.reporting.written import reformatted

    if not (paths := reformatted(project, machine)):
        return []
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return [
        f"{paths[0]}{more}: line endings were changed, or a byte order mark was added; put"
        f" `/report/** -text` into .gitattributes, then check the files out again"
    ]
