"""Recording: what a plan lacks is measured, signed, and put into the evidence group by group."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmperf.evidence.cost import Cost
from lmperf.evidence.machine import commit_facts
from lmperf.evidence.plan import Plan, Project
from lmperf.evidence.store import DamagedEvidence, write_atomically
from lmperf.measuring.progress import Reporter
from lmperf.measuring.run import measure
from lmperf.measuring.stopwatch import Stopwatch


def record(project: Project, stem: str, log: Path | None = None, age: float = 0.0) -> Counter[str]:
    """Measure what is missing or stale of a benchmark; the number of new rows by status.

    `age` is how many seconds this process has lived already; they are part of the cost.
    """
    watch = Stopwatch(age)
    plan = project.plan(stem)
    if plan.damage:
        aside = plan.evidence.set_aside()
        with Reporter(stem, 0, log) as reporter:
            reporter.note(f"{plan.damage}; moved to {aside.name} and measured again")
        plan = project.plan(stem)
    # Where an observation may leave a file of its own (the traces of `profiles`).
    os.environ["LMPERF_TRACES"] = str(project.directory / "traces")
    statuses: Counter[str] = Counter()
    if plan.pending:
        with Reporter(stem, len(plan.pending), log) as reporter:
            statuses = _record_pending(project, plan, reporter, watch)
    if plan.evidence.path.exists():
        os.utime(plan.evidence.path)  # an output that is fresh without work is still this run's
    return statuses


def _record_pending(
    project: Project, plan: Plan, reporter: Reporter, watch: Stopwatch
) -> Counter[str]:
    cost = _cost_of(project)
    groups = saved = 0

    def save(rows: list[dict[str, Any]], device_facts: Mapping[str, Any]) -> None:
        nonlocal groups, saved
        groups, saved = groups + 1, saved + len(rows)
        facts = _record_environment(project, device_facts)
        plan.evidence.replace(_signed(plan, row, facts) for row in rows)
        cost.replace([watch.row(plan.stem, project.preset, groups, saved)])

    return measure(plan.benchmark, plan.pending, project.machine.kind, save, reporter, watch)


def _cost_of(project: Project) -> Cost:
    """What the jobs of this machine have cost; a damaged file is put aside."""
    cost = Cost(project.directory)
    try:
        cost.read()
    except DamagedEvidence:
        cost.set_aside()
    return cost


def _signed(plan: Plan, row: dict[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """A row with where, when, from which commit it was measured, and its key."""
    commit = (facts["commit"] or "unknown")[:12] + ("-dirty" if facts["dirty"] else "")
    return {
        **row,
        "environment": plan.environment,
        "commit": commit,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "key": plan.key(row),
    }


def _record_environment(project: Project, device_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Put the facts of this environment into machine.json, beside those of earlier ones."""
    path = project.directory / "machine.json"
    known = json.loads(path.read_text())["environments"] if path.exists() else {}
    facts = {**project.machine.facts, **device_facts, **commit_facts()}
    facts["measured_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    known[project.machine.environment] = facts
    content = {"machine": project.machine.slug, "preset": project.preset, "environments": known}
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
    return facts
