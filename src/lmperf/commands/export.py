"""`lmperf export`: the report of a machine as one file."""

from __future__ import annotations

from pathlib import Path

import click

from lmperf.commands.options import force_option, of_project, say_replaced
from lmperf.config.machine_names import slug
from lmperf.evidence.project import Project

FORMS = ("html", "pdf")


@click.command(short_help="Write the report of a machine as one HTML or PDF file.")
@click.argument("machine", required=False, type=slug)
@click.option("--format", "form", type=click.Choice(FORMS), default="html", show_default=True)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="By default the name of the machine in this folder.",
)
@force_option
@of_project
def export(project: Project, machine: str | None, form: str, output: Path | None, force: bool):
    """Write the report of MACHINE (by default this machine) as one file with the write-up, every
    page and the figures, which needs no network. PDF needs Chromium.

    \b
    Example:
      lmperf export nvidia-h200 --format pdf --output report.pdf
    """
    from lmperf.reporting import export
    from lmperf.reporting.files import write_files
    from lmperf.reporting.report import evidence_of

    machine = machine or project.machine.slug
    evidence, own = evidence_of(project, machine), project.own_templates
    text = export.html(evidence, own)
    content = export.pdf(text) if form == "pdf" else text.encode()
    path = output or Path(f"{machine}.{form}")
    say_replaced(write_files({path: content}, "move it, or add --force", force))
    print(f"{path}: the report of {machine}")
