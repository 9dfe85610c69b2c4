"""Writes the results of a self-test: `selftest.csv` with a line for each case, and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from lmperf.evidence.machine import commit_facts, commit_words
from lmperf.evidence.project import Project
from lmperf.evidence.store import text_of, write_atomically
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.render import Page
from lmperf.reporting.selftest import SELFTEST, read_selftest

PAGE = "selftest.md"


def write(project: Project, lines: Sequence[Mapping[str, str]]) -> Path:
    """Write the CSV and the page into `report/<machine>`, and return the path of the page.

    lines: of the cases, as `run.line_of` makes them.
    """
    facts, (commit, _) = project.machine.facts, commit_facts(project.root)
    about = {
        "device": facts["device"],
        "torch": facts["torch"],
        "commit": commit_words(commit),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    frame = pd.DataFrame(lines).assign(**about).map(text_of)
    directory = project.directory
    content = frame.to_csv(index=False, lineterminator="\n")
    write_atomically(directory / SELFTEST, content.encode())
    write_atomically(directory / PAGE, page(directory, project.own_templates).encode())
    return directory / PAGE


def page(directory: Path, own: Path | None = None) -> str:
    """The page of the self-test whose `selftest.csv` lies in a folder.

    own: folder of the user's templates.
    """
    evidence = Evidence(directory.name, {}, selftest=read_selftest(directory))
    return Page("selftest", evidence, own=own).render()
