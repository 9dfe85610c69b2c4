"""`lmperf site`: the write-ups and pages of all machines as a static site."""

from __future__ import annotations

import click

from lmperf.commands.options import force_option, of_project, say_misnamed, say_replaced
from lmperf.evidence.project import Project


@click.command(short_help="Build the static site of all machines with evidence.")
@force_option
@of_project
def site(project: Project, force: bool):
    """Build a static site in site/ from the evidence in report/. It opens from a file and from any
    web server, and needs no network. Files in site/ that lmperf did not write stay as they are.

    \b
    Example:
      lmperf site
    """
    from lmperf.reporting.report import site_of
    from lmperf.reporting.site import INDEX, build

    say_misnamed(project)
    folder = project.site_directory
    other = "name another folder in the configuration (site: lmperf-site)"
    remedy = f"replace it with lmperf site --force, or {other}"
    say_replaced(build(site_of(project), folder, remedy, force))
    print(f"{folder / INDEX}: the site")
