"""Whether a write-up is up to date with its evidence and the code that renders it.

Rendering writes a record to `.lmperf/written/`: a digest of evidence, notes, code and templates,
and of the resulting files. While it matches, the write-up is not rendered again. Without `.lmperf/`
the write-up is rendered once more than necessary.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from lmperf.evidence.project import Project
from lmperf.evidence.store import EVIDENCE, STORE, file_digest, no_later_than_now, write_atomically
from lmperf.evidence.syntax import digest
from lmperf.reporting.key import NOTES, rendering_key

RECORDS = Path(".lmperf/written")
# File name of the self-test's results in a machine's directory; the page selftest.md shows them.
SELFTEST = "selftest.csv"
# What lies in a machine's directory: folders, files, and file names by folder.
_FOLDERS = ("figures", NOTES, "traces", EVIDENCE, STORE)
_FILES = ("machine.json", "machine.sha256", SELFTEST)
_SUFFIXES = {".": (".md",), "figures": (".svg",), EVIDENCE: (".csv", ".sha256")}
# Heading of the findings of the first screen.
SHORT = "In short"


def target(project: Project, machine: str | None) -> Path:
    """The write-up of a machine, or that of this checkout if `machine` is None."""
    return project.report_directory / (machine or "") / "report.md"


def is_current(project: Project, machine: str | None) -> bool:
    """Whether the write-up is up to date: rendering it again would write the same files."""
    try:
        return _record_of(project, machine).read_text() == _state(project, machine)
    except (OSError, UnicodeError):
        return False


def record(project: Project, machine: str | None) -> None:
    """Record that the write-up was just rendered from the current evidence.

    If the record cannot be written, the write-up is rendered again next time.
    """
    no_later_than_now([*_sources(project), *pages(project, project.machine.slug)])
    with contextlib.suppress(OSError):
        write_atomically(_record_of(project, machine), _state(project, machine).encode())


def pages(project: Project, machine: str | None) -> list[Path]:
    """The Markdown files of a write-up, including ``target``."""
    return sorted(target(project, machine).parent.glob("*.md"))


def findings(project: Project, machine: str) -> list[str]:
    """The sentences of the first screen of a machine's write-up, without their links."""
    path = target(project, machine)
    text = path.read_text() if path.exists() else ""
    short = text.partition(f"## {SHORT}\n")[2].partition("\n## ")[0]
    return re.findall(r"^- (.*?)(?: \[[^\]]*\]\([^)]*\))?$", short, re.MULTILINE)


def figures(project: Project, machine: str | None) -> list[Path]:
    """The figures of a write-up."""
    return sorted((target(project, machine).parent / "figures").glob("*.svg"))


def foreign(project: Project, machine: str) -> list[Path]:
    """Files in a machine's directory that lmperf does not write, and links among those it does."""
    directory = project.report_directory / machine
    found = [*directory.iterdir()]
    for folder in ("figures", EVIDENCE):
        found += (directory / folder).glob("*")
    return sorted(path for path in found if not _belongs(path.relative_to(directory), path))


def _belongs(name: Path, path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return str(name) in _FOLDERS or name.suffix == ".damaged"
    if name.suffix == ".damaged":  # set aside by a job; never published
        return True
    folder = str(name.parent)
    return name.suffix in _SUFFIXES[folder] or (folder == "." and name.name in _FILES)


def _record_of(project: Project, machine: str | None) -> Path:
    return project.root / RECORDS / target(project, machine).relative_to(project.report_directory)


def _state(project: Project, machine: str | None) -> str:
    here = [project.machine.slug, project.machine.environment, project.can_measure]
    here.append(project.config.peer_versions())
    files = [*_sources(project), *pages(project, machine), *figures(project, machine)]
    known = [
        [str(path.relative_to(project.root)), file_digest(path)] for path in files if path.is_file()
    ]
    return digest(json.dumps([rendering_key(project.config, project.root), here, known]))


def _sources(project: Project) -> Iterator[Path]:
    """The files that write-ups are made from: evidence and notes."""
    for machine in project.machines_with_evidence():
        yield project.report_directory / machine / "machine.json"
        yield project.report_directory / machine / SELFTEST
        yield from sorted((project.report_directory / machine / NOTES).glob("*.md"))
        yield from sorted((project.report_directory / machine / "evidence").glob("*.csv"))
