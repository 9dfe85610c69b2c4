"""`lmperf publish` adds the evidence and the report of this machine to Git's index."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from lmperf.benchmarks import stems
from lmperf.commands.options import of_project, say
from lmperf.commands.report import render
from lmperf.commands.verify import allow_marked, allow_option, print_causes
from lmperf.errors import UserError
from lmperf.evidence import cost, repeatability
from lmperf.evidence.facts import FILE
from lmperf.evidence.project import Project
from lmperf.evidence.store import EVIDENCE


@click.command(short_help="Add this machine's evidence and report to Git, if verify passes.")
@allow_option
@click.option(
    "--anyway",
    metavar="REASON",
    help="Publish although rows are red, failed, stale or missing. The write-up shows REASON.",
)
@of_project
def publish(project: Project, reason: str | None, anyway: str | None) -> int:
    """Verify the evidence of this machine, render its write-up, and add both to Git's index, with
    the overview. Nothing is committed; the last line has the command.

    \b
    Example:
      lmperf publish --allow-marked "a shared host; it is never idle"
    """
    from lmperf.evidence import despite
    from lmperf.evidence.review import review
    from lmperf.reporting import written

    machine = project.machine.slug
    if machine not in project.machines_with_evidence():
        raise UserError(f"{machine} has not been measured; run make report first")
    if reason is not None:
        allow_marked(project, [machine], reason)
    if anyway is not None:
        _allow(project, machine, anyway)
    for target in (machine, None):
        if not written.is_current(project, target):
            render(project, target)
    reviewed = review(project, machine)
    allowed = bool(despite.reason_for(reviewed.facts, list(reviewed.of_rows())))
    if print_causes(project, [machine], verbose=False, allowed=allowed):
        return 1
    files = [f"{machine}/{name}" for name in _published(project.directory)]
    files += sorted(path.name for path in project.report_directory.glob("*.md"))
    command = ["git", "-C", str(project.report_directory), "add", "--force", "--", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"git add failed: {done.stderr.strip().partition(chr(10))[0]}")
    print(
        f"{project.report_directory}: {len(files)} files are in Git's index; commit them with"
        f' git commit -m "Publish the report of {machine}"'
    )
    return 0


def _published(directory: Path) -> list[str]:
    """Names of the files to publish, below the directory of a machine that passes `verify`."""
    from lmperf.reporting.evidence import traces_in
    from lmperf.reporting.selftest import SELFTEST

    tables = [f"{EVIDENCE}/{stem}.csv" for stem in (*stems(), cost.STEM, repeatability.STEM)]
    signed = [FILE, *(name for name in tables if (directory / name).exists())]
    digests = [str(Path(name).with_suffix(".sha256")) for name in signed]
    rendered = [*sorted(directory.glob("*.md")), *sorted(directory.glob("figures/*.svg"))]
    shown = [str(path.relative_to(directory)) for path in rendered]
    traces = [f"traces/{name}" for name in sorted(traces_in(directory))]
    selftest = [SELFTEST] if (directory / SELFTEST).exists() else []
    return [*signed, *digests, *shown, *selftest, *traces]


def _allow(project: Project, machine: str, reason: str) -> None:
    """Record why rows that are not right are published; the write-up will show it."""
    from lmperf.evidence import despite
    from lmperf.evidence.at_work import check_reason
    from lmperf.evidence.review import review

    reason = check_reason("--anyway", reason)
    wrong = list(review(project, machine).of_rows())
    if not wrong:
        say(f"{machine}: all rows are right; --anyway is not needed")
        return
    despite.allow(project.directory, machine, wrong, reason)
    say(f"{project.directory / FILE}: says why {despite.words(wrong)} are published")
