"""`lmperf add`: add the report of another person's machine to this one."""

from __future__ import annotations

from pathlib import Path

import click

from lmperf.commands.options import MACHINE, of_project, say
from lmperf.evidence.project import Project


@click.command(short_help="Add the evidence of a machine from another repository.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--as", "name", type=MACHINE, metavar="NAME", help="Its name here.")
@click.option("--replace", is_flag=True, help="Replace the machine of this name.")
@of_project
def add(project: Project, path: Path, name: str | None, replace: bool) -> int:
    """Add the evidence in PATH, the folder report/<machine> of another repository, as another
    machine, and render its write-up. Its digests and rows are checked first; with a fault, nothing
    is added.

    \b
    Example:
      lmperf add ../theirs/report/nvidia-h100 --as nvidia-h100-lab
    """
    from lmperf.commands.report import render
    from lmperf.evidence import added
    from lmperf.evidence.review import causes, tally

    name = name or added.machine_in(path)
    if faults := added.add(project, path, name, replace):
        for words in faults:
            say(words)
        return 2
    render(project, name)
    render(project, None)
    print(project.report_directory / name)
    for line in tally(causes(project, name)):
        print(f"  {line}")
    return 0
