"""`lmperf publish` adds the evidence and the report of this machine to Git's index."""

from __future__ import annotations

import click

from lmperf.commands.options import of_project, say
from lmperf.commands.report import render
from lmperf.commands.verify import print_causes
from lmperf.errors import UserError
from lmperf.evidence.project import Project
from lmperf.machine.repository import git, is_in_git


@click.command(short_help="Add this machine's evidence and report to Git, if verify passes.")
@click.option(
    "--anyway",
    metavar="REASON",
    help="Publish although rows are red, failed, loaded, stale or missing. The write-up shows it.",
)
@of_project
def publish(project: Project, anyway: str | None) -> int:
    """Verify the evidence of this machine, render its write-up, and add both to Git's index, with
    the overview. Nothing is committed; the last line has the command.

    \b
    Example:
      lmperf publish --anyway "a shared host; it is never idle"
    """
    from lmperf.evidence.review import OF_ROWS, review
    from lmperf.reporting import written
    from lmperf.reporting.evidence import traces_in

    folder, machine = project.report_directory, project.machine.slug
    if machine not in project.machines_with_evidence():
        raise UserError(f"{machine} has not been measured; run make report first")
    if not is_in_git(folder):
        link = f"a link to {folder.resolve()}, which is " if folder.is_symlink() else ""
        raise UserError(f"{folder} is {link}in no Git repository; publish needs one")
    if anyway is not None:
        reviewed = review(project, machine)
        if reviewed.of_kinds(OF_ROWS):
            reviewed.allow(project.directory, anyway)
        else:
            say(f"{machine}: all rows are right; --anyway is not needed")
    render(project, None)
    if print_causes(project, [machine]):
        return 1
    traces = (project.directory / "traces" / name for name in traces_in(project.directory))
    paths = [*written.files_of(project, machine), *sorted(traces)]
    paths += written.files_of(project, None)
    files = [str(path.relative_to(project.root)) for path in paths]
    gone = written.deleted(project, machine)
    git(project.root, "add", "--force", "--", *files)
    if gone:
        git(project.root, "rm", "--quiet", "--cached", "--", *gone)
    print(
        f"{project.report_directory}: {len(files)} files are in Git's index; commit them with"
        f' git commit -m "Publish the report of {machine}"'
    )
    return 0
