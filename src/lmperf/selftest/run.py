"""Runs the self-test: measures each session in a temporary folder, as for a user's report.

A session measures some planted implementations (wrong, fake or harmful on purpose) in one cell. Its
configuration names them as custom implementations. The rows go through the same plan, record,
evidence and tables as those of a report, and are compared with the expected outcomes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml

from lmperf.config import load_config
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.record import record
from lmperf.evidence.review import review
from lmperf.reporting.evidence import Evidence
from lmperf.selftest.case import Case, Session, left_out
from lmperf.selftest.cases import SESSIONS
from lmperf.selftest.expectations import Found, Outcome, least_ms

Sessions = Mapping[Session, Sequence[Case]]
# Keeps a core busy until its standard input is closed. It forks, and its parent ends, since the
# load of lmperf's own descendants is not counted as other load.
BURNER = """
import os, sys, threading

if os.fork():
    os._exit(0)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""


@dataclass(frozen=True)
class Result:
    """The outcome and rows of a case; `left_out`: why the case was not run, if it was not."""

    case: Case
    outcome: Outcome | None
    left_out: str | None = None
    rows: pd.DataFrame | None = None


class SessionProject(Project):
    """A project whose benchmarks have the timeout and the measuring time of a session."""

    limit_s: float
    patient: bool = False

    def plan(self, stem: str) -> Plan:
        plan = super().plan(stem)
        plan.benchmark.limit_s, plan.benchmark.patient = self.limit_s, self.patient
        return plan


def run(project: Project, sessions: Sessions = SESSIONS) -> Iterator[Result]:
    """Measure each session, and yield the result of each of its cases."""
    quiet: dict[str, float] = {}
    for session, cases in sessions.items():
        here = [case for case in cases if left_out(session, case, project.machine) is None]
        with tempfile.TemporaryDirectory(prefix="lmperf-selftest-") as folder:
            evidence = measured(project, session, here, Path(folder)) if here else None
        if here and not quiet:
            undisturbed = Found(evidence, session.neighbour, session.neighbour, {}, session.stem)
            quiet = least_ms(undisturbed.rows())
        for case in cases:
            reason = left_out(session, case, project.machine)
            if reason:
                yield Result(case, None, left_out=reason)
            else:
                found = Found(evidence, case.name, session.neighbour, quiet, session.stem)
                yield Result(case, case.expect(found), rows=found.rows())


def measured(project: Project, session: Session, cases: Sequence[Case], root: Path) -> Evidence:
    """Measure a session, and return its rows as a report of this machine reads them.

    Args:
        project: the user's project, for the machine and the preset; it is not changed.
        cases: the cases of the session that can run on this device.
        root: an empty folder for the session's files.
    """
    path = root / "config.yaml"
    path.write_text(yaml.safe_dump(_configuration(project, session, cases)))
    of_session = SessionProject(load_config(path), root)
    of_session.limit_s, of_session.patient = session.limit_s, session.patient
    with busy_cores() if session.busy else nullcontext():
        record(of_session, of_session.plan(session.stem))
    return Evidence.reviewed(review(of_session, of_session.machine.slug))


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with processes that are not descendants of this one."""
    readable, writable = os.pipe()
    try:
        for _ in range(os.cpu_count() or 1):
            subprocess.run([sys.executable, "-c", BURNER], stdin=readable, check=True)
        os.close(readable)
        yield
    finally:
        os.close(writable)  # ends them, as the end of this process would


def _configuration(project: Project, session: Session, cases: Sequence[Case]) -> dict:
    return {
        "preset": project.preset,
        "machine": project.machine.slug,
        "benchmarks": [session.stem],
        "grid": {session.stem: session.grid(project.machine.kind)},
        "implementations": {session.stem: {case.name: case.reference for case in cases}},
    }
