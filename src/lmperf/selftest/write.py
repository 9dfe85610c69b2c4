"""Writes the results of a self-test: `selftest.csv` with a line for each case, and a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from lmperf.benchmarks import load
from lmperf.evidence.machine import commit_facts
from lmperf.evidence.project import Project
from lmperf.evidence.store import text_of, write_atomically
from lmperf.reporting import written
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.foreign import plain
from lmperf.reporting.render import Page
from lmperf.reporting.selftest import HELD, NOT_HELD, NOT_RUN, SELFTEST, read_selftest
from lmperf.selftest.cases import RANKED_STEM, STEM
from lmperf.selftest.run import Result

PAGE = "selftest.md"
# Columns of the row of each phase that `selftest.csv` records.
_OF_ROWS = ("status", "reason", "marks", "median_ms")


def write(project: Project, results: Sequence[Result]) -> Path:
    """Write the CSV and the page into `report/<machine>`, and return the path of the page.

    A write-up that was up to date stays so: the record of its rendered files is updated.
    """
    slug, directory = project.machine.slug, project.directory
    current = [machine for machine in (slug, None) if written.is_current(project, machine)]
    content = _frame(project, results).to_csv(index=False, lineterminator="\n")
    write_atomically(directory / SELFTEST, content.encode())
    write_atomically(directory / PAGE, page(directory, project.own_templates).encode())
    for machine in current:
        written.record(project, machine)
    return directory / PAGE


def page(directory: Path, own: Path | None = None) -> str:
    """The page of the self-test whose `selftest.csv` lies in a folder.

    own: folder of the user's templates.
    """
    evidence = Evidence(directory.name, {}, selftest=read_selftest(directory))
    return Page("selftest", evidence, own=own).render()


def _frame(project: Project, results: Iterable[Result]) -> pd.DataFrame:
    facts = {**project.machine.facts, **commit_facts(project.root)}
    about = {
        "device": facts["device"],
        "torch": facts["torch"],
        "commit": (facts["commit"] or "unknown")[:12] + ("-dirty" if facts["dirty"] else ""),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    phases = [phase for stem in (STEM, RANKED_STEM) for phase in load(stem).phases]
    lines = [{**_line(result, phases), **about} for result in results]
    return pd.DataFrame(lines).map(text_of)


def answer(result: Result) -> str:
    """Return HELD, NOT_HELD or NOT_RUN: whether the outcome of a case is as expected."""
    if result.outcome is None:
        return NOT_RUN
    return HELD if result.outcome.held else NOT_HELD


def _line(result: Result, phases: Iterable[str]) -> dict[str, Any]:
    case, outcome = result.case, result.outcome
    found = {} if result.rows is None else result.rows.to_dict("index")
    return {
        "case": case.name,
        "does": case.does,
        "expected": case.expect.words,
        "outcome": outcome.words if outcome else result.left_out,
        "why": case.why,
        "held": answer(result),
        **{f"{p}_{name}": _cell(found.get(p, {}).get(name)) for p in phases for name in _OF_ROWS},
    }


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    return None if pd.isna(value) else value
