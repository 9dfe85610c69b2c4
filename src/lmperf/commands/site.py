"""`lmperf site`: the write-ups and pages of all machines as a static site."""

from __future__ import annotations

import click

from lmperf.commands.options import of_project
from lmperf.evidence.project import Project


@click.command(short_help="Build the static site of all machines with evidence.")
@of_project
def site(project: Project):
    """Build a static site in site/ from the evidence in report/. It opens from a file and from any
    web server, and needs no network.

    \b
    Example:
      lmperf site
    """
    from lmperf.reporting.report import site_of
    from lmperf.reporting.site import build

    print(f"{build(site_of(project), project.root / 'site')}: the site")
