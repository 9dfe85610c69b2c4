"""Whether a write-up is what its evidence renders to today.

Rendering leaves a note in `.lmperf/written/`: a digest of the evidence, of what renders it, and of
the files that came out. While the note holds, the write-up need not be rendered again. It is lost
with `.lmperf/`, and then the write-up is rendered once more than it had to be.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from lmperf.evidence.closure import digest
from lmperf.evidence.project import Project
from lmperf.evidence.store import file_digest, no_later_than_now, write_atomically
from lmperf.reporting.key import rendering_key

NOTES = Path(".lmperf/written")
# What a selftest leaves in the directory of a machine; a page is rendered from it.
SELFTEST = "selftest.csv"
# Above the findings of the first screen.
SHORT = "In short"


def target(project: Project, machine: str | None) -> Path:
    """The file that a reader opens: of a machine, or of the checkout when `machine` is None."""
    return project.report_directory / (machine or "") / "report.md"


def is_current(project: Project, machine: str | None) -> bool:
    """Whether rendering would write what is there already."""
    try:
        return _note(project, machine).read_text() == _state(project, machine)
    except (OSError, UnicodeError):
        return False


def record(project: Project, machine: str | None) -> None:
    """Note that the write-up has just been rendered from the evidence that is here.

    Where no note can be written, the write-up is rendered once more than it had to be.
    """
    no_later_than_now([*_evidence(project), *pages(project, project.machine.slug)])
    with contextlib.suppress(OSError):
        write_atomically(_note(project, machine), _state(project, machine).encode())


def pages(project: Project, machine: str | None) -> list[Path]:
    """The Markdown files of a write-up, the one to open first among them."""
    return sorted(target(project, machine).parent.glob("*.md"))


def findings(project: Project, machine: str) -> list[str]:
    """The sentences of a machine's write-up that stand on its first screen, without their links."""
    path = target(project, machine)
    text = path.read_text() if path.exists() else ""
    short = text.partition(f"## {SHORT}\n")[2].partition("\n## ")[0]
    return re.findall(r"^- (.*?)(?: \[[^\]]*\]\([^)]*\))?$", short, re.MULTILINE)


def figures(project: Project, machine: str) -> list[Path]:
    """The figures of a machine's write-up."""
    return sorted((project.report_directory / machine / "figures").glob("*.svg"))


def _note(project: Project, machine: str | None) -> Path:
    return project.root / NOTES / target(project, machine).relative_to(project.report_directory)


def _state(project: Project, machine: str | None) -> str:
    here = [project.machine.slug, project.machine.environment, project.can_measure]
    here.append(project.config.peer_versions())
    files = [*_evidence(project), *pages(project, machine)]
    files += figures(project, machine) if machine else []
    known = [
        [str(path.relative_to(project.root)), file_digest(path)] for path in files if path.is_file()
    ]
    return digest(json.dumps([rendering_key(project.config, project.root), here, known]))


def _evidence(project: Project) -> Iterator[Path]:
    for machine in project.machines_with_evidence():
        yield project.report_directory / machine / "machine.json"
        yield project.report_directory / machine / SELFTEST
        yield from sorted((project.report_directory / machine / "evidence").glob("*.csv"))
