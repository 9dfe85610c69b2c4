"""Measuring a benchmark: its pending groups, one after another, saved as each is done."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case
from lmperf.fingerprint import digest
from lmperf.measuring.cost import Cost, Stopwatch
from lmperf.measuring.machine import commit_facts
from lmperf.measuring.progress import Reporter
from lmperf.measuring.store import DamagedEvidence, write_atomically
from lmperf.measuring.supervisor import Supervisor
from lmperf.plan import Plan, Project


def measure(project: Project, stem: str, log: Path | None = None, age: float = 0.0) -> Counter[str]:
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
    if plan.benchmark.is_check and project.machine.kind != "cuda":
        os.environ["TRITON_INTERPRET"] = "1"  # before the first worker imports Triton
    # Where an observation may leave a file of its own (the traces of `profiles`).
    os.environ["LMPERF_TRACES"] = str(project.directory / "traces")
    statuses: Counter[str] = Counter()
    if plan.pending:
        with Reporter(stem, len(plan.pending), log) as reporter:
            _measure_pending(project, plan, reporter, statuses, watch)
    if plan.evidence.path.exists():
        os.utime(plan.evidence.path)  # an output that is fresh without work is still this run's
    return statuses


def _measure_pending(
    project: Project, plan: Plan, reporter: Reporter, statuses: Counter[str], watch: Stopwatch
) -> None:
    def step(words: str, case: Case | None, phase: str | None) -> None:
        watch.enter(words)
        name = f"{case.name}{', ' + phase if phase else ''}: " if case else ""
        reporter.step(name + words)

    cost = _cost_of(project)
    with Supervisor(project.machine.kind, step) as supervisor:
        for done, group in enumerate(plan.pending, start=1):
            seed = int(digest(f"{plan.stem} {group[0].cell}")[:7], 16)
            rows = supervisor.measure(plan.benchmark, group, seed)
            watch.enter("saving")
            facts = _record_environment(project, supervisor.facts)
            plan.evidence.replace(_signed(plan, row, facts) for row in rows)
            found = Counter(str(row["status"]) for row in rows)
            statuses.update(found)
            row = watch.row(plan.stem, project.preset, done, statuses.total())
            cost.replace([row])
            counts = ", ".join(f"{number} {status}" for status, number in sorted(found.items()))
            reporter.finished(f"{_group_name(plan, group)}: {counts}")


def _cost_of(project: Project) -> Cost:
    """What the jobs of this machine have cost; a damaged file is put aside."""
    cost = Cost(project.directory)
    try:
        cost.read()
    except DamagedEvidence:
        cost.set_aside()
    return cost


def _group_name(plan: Plan, group: list[Case]) -> str:
    shared = [pair for pair in group[0].cell if pair[0] not in plan.benchmark.together]
    return ", ".join(f"{axis}={value}" for axis, value in shared) or plan.stem


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


def _record_environment(project: Project, worker_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Put the facts of this environment into machine.json, beside those of earlier ones."""
    path = project.directory / "machine.json"
    known = json.loads(path.read_text())["environments"] if path.exists() else {}
    facts = {**project.machine.facts, **worker_facts, **commit_facts()}
    facts["measured_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    known[project.machine.environment] = facts
    content = {"machine": project.machine.slug, "preset": project.preset, "environments": known}
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
    return facts
