"""`lmperf export`: the report of a machine as one file."""

from __future__ import annotations

from pathlib import Path

import click

from lmperf.commands.options import MACHINE, Choice, of_project
from lmperf.evidence.project import Project

SUFFIXES = {"html": ".html", "pdf": ".pdf", "latex": ".tex"}


@click.command(short_help="Write the report of a machine as one HTML, PDF or LaTeX file.")
@click.argument("machine", required=False, type=MACHINE)
@click.option("--format", "form", type=Choice([*SUFFIXES]), default="html", show_default=True)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="By default the name of the machine in this folder.",
)
@of_project
def export(project: Project, machine: str | None, form: str, output: Path | None):
    """Write the report of MACHINE (by default this machine) as one file. HTML and PDF hold the
    write-up, every page and the figures, and need no network; LaTeX holds the text and the tables
    of the write-up. PDF needs Chromium.

    \b
    Example:
      lmperf export nvidia-h200 --format pdf --output report.pdf
    """
    from lmperf.reporting import export
    from lmperf.reporting.files import replace_files
    from lmperf.reporting.report import evidence_of

    machine = machine or project.machine.slug
    evidence, own = evidence_of(project, machine), project.own_templates
    text = export.latex(evidence, own) if form == "latex" else export.html(evidence, own)
    content = export.pdf(text) if form == "pdf" else text.encode()
    path = output or Path(machine + SUFFIXES[form])
    replace_files(path.parent, {path.name: content}, ())
    print(f"{path}: the report of {machine}")
