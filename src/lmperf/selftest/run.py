"""Runs the self-test: measures each session in a temporary folder, as for a user's report.

The configuration of a session names its planted implementations as custom implementations. The rows
go through the same plan, record and evidence as those of a report, and are compared with the
expected outcomes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from lmperf.config.read import config_of
from lmperf.evidence.project import Project
from lmperf.evidence.record import record
from lmperf.evidence.review import review
from lmperf.evidence.store import text_of, write_atomically
from lmperf.machine.repository import commit_words
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.files import SELFTEST
from lmperf.reporting.frames import having
from lmperf.reporting.selftest import HELD, NOT_HELD, NOT_RUN
from lmperf.selftest.expectations import all_ok, in_words
from lmperf.selftest.sessions import SESSIONS, Planted, Session


def run(project: Project, sessions: Sequence[Session] = SESSIONS) -> Iterator[dict[str, str]]:
    """Measure each session, and yield the line of `selftest.csv` of each of its cases."""
    for session in sessions:
        reasons = {case: session.left_out(case, project.machine) for case in session.cases}
        here = [case for case, reason in reasons.items() if reason is None]
        if here:
            with tempfile.TemporaryDirectory(prefix="lmperf-selftest-") as folder:
                rows = measured(project, session, here, Path(folder))
        for case, reason in reasons.items():
            judged = (reason, NOT_RUN) if reason else _judged(case, session.neighbour, rows)
            yield line_of(case, *judged)


def line_of(case: Planted, outcome: str, held: str) -> dict[str, str]:
    """The line of `selftest.csv` of a case.

    Args:
        outcome: the outcome in words, or why the case was not run.
        held: HELD, NOT_HELD or NOT_RUN: whether the outcome is as expected.
    """
    return {
        "case": case.name,
        "does": case.does,
        "expected": case.expect.words,
        "outcome": outcome,
        "why": case.why,
        "held": held,
    }


def measured(
    project: Project, session: Session, cases: Sequence[Planted], root: Path
) -> pd.DataFrame:
    """Measure a session, and return its rows as a report of this machine reads them.

    Args:
        project: the user's project, for the machine and the preset; it is not changed.
        cases: the cases of the session that can run on this device.
        root: an empty folder for the session's files.
    """
    content = {
        "preset": project.preset,
        "machine": project.machine.slug,
        "benchmarks": [session.stem],
        "grid": {session.stem: session.grid(project.machine.kind)},
        "implementations": {session.stem: {case.name: case.entry for case in cases}},
    }
    own = Project(config_of(content, root, {}), root)
    record(own, own.plan(session.stem))
    return Evidence.reviewed(review(own, own.machine.slug)).rows(session.stem)


def _judged(case: Planted, neighbour: str, rows: pd.DataFrame) -> tuple[str, str]:
    """The outcome of a case, and whether it held; the implementation beside it must be ok, too."""
    planted, beside = (
        having(rows, implementation=name).set_index("phase") for name in (case.name, neighbour)
    )
    outcome = in_words(planted)
    if not all_ok(beside):
        return f"{outcome}; the implementation beside it: {in_words(beside)}", NOT_HELD
    return outcome, HELD if case.expect.is_met(planted) else NOT_HELD


def write(project: Project, lines: Sequence[Mapping[str, str]]) -> Path:
    """Write the CSV into `report/<machine>`, and return its path; the report has its page.

    lines: of the cases, as `line_of` makes them.
    """
    facts, (commit, _) = project.machine.facts, project.commit_facts()
    about = {
        "device": facts["device"],
        "torch": facts["torch"],
        "commit": commit_words(commit),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    table = pd.DataFrame(lines).assign(**about).map(text_of)
    path = project.directory / SELFTEST
    write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode())
    return path
