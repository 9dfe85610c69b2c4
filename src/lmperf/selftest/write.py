"""Writes the results of a self-test: `selftest.csv` with a line for each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from lmperf.evidence.project import Project
from lmperf.evidence.store import text_of, write_atomically
from lmperf.machine.repository import commit_words
from lmperf.reporting.selftest import SELFTEST


def write(project: Project, lines: Sequence[Mapping[str, str]]) -> Path:
    """Write the CSV into `report/<machine>`, and return its path; the report has its page.

    lines: of the cases, as `run.line_of` makes them.
    """
    facts, (commit, _) = project.machine.facts, project.commit_facts()
    about = {
        "device": facts["device"],
        "torch": facts["torch"],
        "commit": commit_words(commit),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    frame = pd.DataFrame(lines).assign(**about).map(text_of)
    path = project.directory / SELFTEST
    write_atomically(path, frame.to_csv(index=False, lineterminator="\n").encode())
    return path
