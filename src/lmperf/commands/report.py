"""`lmperf report` renders a write-up, and says what is wrong with its evidence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from lmperf.commands.options import force_option, of_project, say, say_misnamed, say_replaced
from lmperf.config.machine_names import slug
from lmperf.errors import UserError
from lmperf.evidence.project import Project

if TYPE_CHECKING:  # pandas is slow to import
    from lmperf.reporting.evidence import Evidence

SOMETHING_IS_DUE = 3  # exit code of --if-nothing-is-due where cases are to be measured


@click.command(short_help="Render the write-up of measured evidence.")
@click.argument("machine", required=False, type=slug)
@click.option("--page", metavar="NAME", help="Only this page, such as lrpe; report: the first.")
@click.option("--watch", is_flag=True, help="Render again whenever a template is saved.")
@click.option("--if-nothing-is-due", is_flag=True, hidden=True)  # measured; for `make report`
@force_option
@of_project
def report(
    project: Project,
    machine: str | None,
    page: str | None,
    watch: bool,
    if_nothing_is_due: bool,
    force: bool,
) -> int:
    """Render the write-up of MACHINE from its evidence; without MACHINE, render report/report.md
    for this machine, and the pages that it links to.

    Only pages are rendered whose templates have changed; after a change of evidence or code, and
    with --force, all are. With --page or --watch only pages of MACHINE, by default this machine.

    Notes in your templates of which nothing is left are named, with the reason.

    Rendering never waits for a measurement. It replaces and removes only files that lmperf wrote,
    which .lmperf-files beside them lists.

    \b
    Examples:
      lmperf report nvidia-h200
      lmperf report nvidia-h200 --page lrpe --watch
    """
    if if_nothing_is_due and project.due_jobs:
        return SOMETHING_IS_DUE
    if page is not None or watch:
        _render_pages(project, machine or project.machine.slug, page, watch, force)
        return 0
    render(project, machine, force)
    say_where(project, machine)
    return 0


def render(project: Project, machine: str | None, force: bool = False) -> None:
    """Render the write-up of a machine, or the overview, as far as it is out of date.

    The overview links to the pages of this machine and to the write-ups of the others: those of
    this machine that are out of date, and those of others that are missing, are rendered as well.
    """
    from lmperf.reporting import written

    linked = (
        name
        for name in project.machines_with_evidence()
        if project.is_here(name) or not written.target(project, name).exists()
    )
    machines = [machine] if machine is not None else [*linked, None]
    pages = {target: None if force else written.due_pages(project, target) for target in machines}
    _write(project, {target: due for target, due in pages.items() if due != set()}, force)
    for target in machines:
        written.target(project, target).touch()  # so that Snakemake knows that nothing is due


def _write(
    project: Project,
    due: Mapping[str | None, set[str] | None],
    force: bool,
    page: str | None = None,
    read: Mapping[str, Evidence] = MappingProxyType({}),
) -> None:
    """Render pages; then name the files that were replaced, and the author's notes left out.

    page: the only page of each machine that is rendered; None: all that are due. The others are
    arguments of `reporting.report.render`.
    """
    from lmperf.reporting import report, written
    from lmperf.reporting.render import lost_notes

    lost_notes.set([])
    say_replaced(report.render(project, due, force, read))
    for words in dict.fromkeys(lost_notes.get()):
        say(words)
    for machine in due:
        written.record(project, machine, page)


def _render_pages(
    project: Project, machine: str, page: str | None, watch: bool, force: bool
) -> None:
    """Render a page of a machine, or those whose templates have changed; `watch`: again and again.

    Raises:
        UserError: the machine has no such page.
    """
    from lmperf.reporting import report, written
    from lmperf.reporting.pages import REPORT, page_names

    evidence = report.evidence_of(project, machine)
    names = [REPORT, *page_names(project.own_templates, evidence)]
    if page is not None and page not in names:
        raise UserError(f"unknown page {page}; {machine} has {', '.join(names)}")

    def render_due(due: set[str] | None) -> None:
        began = time.monotonic()
        _write(project, {machine: due}, force, page, {machine: evidence})
        rendered = names if due is None else [name for name in names if name in due]
        folder = written.target(project, machine).parent
        print(
            f"{folder}: {', '.join(rendered) or 'nothing'} in {time.monotonic() - began:.1f} s",
            flush=True,
        )

    render_due({page} if page is not None else written.due_pages(project, machine))
    for due in written.edits(project) if watch else ():
        wanted = due.intersection(names if page is None else [page])
        try:
            if wanted:
                render_due(wanted)
        except UserError as error:
            say(str(error))


def not_rendered(project: Project, machine: str) -> list[str]:
    """A message for each page and figure that is missing, was edited, or is out of date."""
    from lmperf.reporting.report import edited
    from lmperf.reporting.written import target

    folder = target(project, machine).parent
    differs = "differs from what its evidence renders to: it was edited, or is out of date"
    missing = "has not been rendered; run lmperf report"
    paths = [folder / name for name in edited(project, machine)]
    return [f"{path}: {differs if path.exists() else missing}" for path in paths]


def say_where(project: Project, machine: str | None) -> None:
    """Print the path of the write-up, then a line for each kind of fault in its evidence."""
    from lmperf.evidence.review import causes, review, tally
    from lmperf.reporting.written import target

    whose = machine or project.machine.slug
    say_misnamed(project)
    print(f"{target(project, machine)}: the write-up of {whose}")
    if whose not in project.machines_with_evidence():
        print(f"  {whose} has not been measured")
        return
    for line in tally(causes(project, review(project, whose))):
        print(f"  {line}")
