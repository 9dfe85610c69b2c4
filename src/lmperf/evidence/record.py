"""Recording: what a plan lacks is measured, signed, and put into the store group by group."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmperf.custom import broken_ones
from lmperf.evidence import changes
from lmperf.evidence.closure import not_followed
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, read_facts, write_facts
from lmperf.evidence.machine import commit_facts
from lmperf.evidence.plan import Plan, Project
from lmperf.evidence.schema import faults
from lmperf.evidence.store import (
    EVIDENCE,
    STORE,
    DamagedEvidence,
    no_later_than_now,
    set_aside,
    text_of,
)
from lmperf.measuring.cold_cache import compiling_anew
from lmperf.measuring.progress import Reporter
from lmperf.measuring.run import measure
from lmperf.measuring.stopwatch import Stopwatch


def record(project: Project, plan: Plan, log: Path | None = None, age: float = 0.0) -> Counter[str]:
    """Measure what is pending of a plan, and write the evidence of its benchmark; the number of new
    rows by status.

    `age` is how many seconds this process has lived already; they are part of the cost.
    """
    watch = Stopwatch(age)
    with Reporter(plan.stem, len(plan.pending), log) as reporter:
        _repair(project, plan, reporter)
        _name_what_is_not_followed(plan, reporter)
        # Where an observation may leave a file of its own (the traces of `profiles`).
        os.environ["LMPERF_TRACES"] = str(project.directory / "traces")
        statuses = _record_pending(project, plan, reporter, watch) if plan.pending else Counter()
    write(project, project.plan(plan.stem))
    return statuses


def write(project: Project, plan: Plan) -> None:
    """Make the evidence of a benchmark from what was measured here, whatever is there."""
    facts, _ = project.known_facts()
    if project.machine.environment not in facts["environments"]:  # machine.json was lost
        facts["environments"][project.machine.environment] = _facts_of_today(project)
    for directory in (project.store, project.directory):
        write_facts(directory, facts)
    Cost(project.directory).hold(project.known_costs())
    plan.evidence.hold(plan.rows)
    # An output that is fresh without work is still this run's.
    no_later_than_now(plan.evidence.path.parent.glob("*.csv"))
    os.utime(plan.evidence.path)


def _repair(project: Project, plan: Plan, reporter: Reporter) -> None:
    """Name what is damaged, put it aside, and have all that is sound in the store."""
    for path, lines in plan.damaged.items():
        aside = set_aside(path)
        more = f" and {len(lines) - 1} more faults" if len(lines) > 1 else ""
        reporter.note(f"{lines[0]}{more}; moved to {aside.name}, and what is sound of it is kept")
    costs = project.known_costs()
    for directory, folder in ((project.store, STORE), (project.directory, EVIDENCE)):
        try:
            read_facts(directory, project.machine.slug)
        except DamagedEvidence as damage:
            reporter.note(f"{damage}; moved to {set_aside(directory / FILE).name}")
        try:
            Cost(project.directory, folder).read()
        except DamagedEvidence as damage:
            aside = Cost(project.directory, folder).set_aside()
            reporter.note(f"{damage}; moved to {aside.name}")
    if costs:
        Cost(project.directory, STORE).hold(costs)
    plan.store.hold(plan.known)


def _name_what_is_not_followed(plan: Plan, reporter: Reporter) -> None:
    for module in sorted({own.module for own in plan.benchmark.external.values()}):
        if names := not_followed(module):
            reporter.note(
                f"{module} imports {', '.join(names)}, whose source cannot be followed: a change"
                " there makes no row stale"
            )


def _record_pending(
    project: Project, plan: Plan, reporter: Reporter, watch: Stopwatch
) -> Counter[str]:
    cost = Cost(project.directory, STORE)
    broken = broken_ones(plan.benchmark)
    for name, words in broken.items():
        reporter.note(
            f"{name} is not measured: {words} (mended outside of its source, it is tried again by"
            " --retry-failed)"
        )
    changes.keep(project, plan)
    groups = saved = 0

    def save(rows: list[dict[str, Any]], device_facts: Mapping[str, Any]) -> None:
        nonlocal groups, saved
        groups, saved = groups + 1, saved + len(rows)
        facts = _record_environment(project, device_facts)
        plan.store.replace(_believed(plan, [_signed(plan, row, facts) for row in rows]))
        cost.replace([watch.row(plan.stem, project.preset, groups, saved)])

    device = project.machine.kind
    with compiling_anew():
        return measure(plan.benchmark, plan.pending, device, save, reporter, watch, broken)


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


def _believed(plan: Plan, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows; of a case with a row that no measurement gives, one that is withheld.

    What an implementation does in its process it can do to what that process says. A case that is
    withheld already keeps its reason, and loses the numbers.
    """
    case_of, texts = plan.store.case_of, [_texts(row) for row in rows]
    wrong = {case_of(texts[index]): words for index, words in faults(plan.benchmark, texts)}
    named = (*plan.store.case_columns, "seed", "environment", "commit", "measured_at", "key")
    believed: dict[Any, dict[str, Any]] = {}
    for index, (row, text) in enumerate(zip(rows, texts, strict=True)):
        case = case_of(text)
        if case not in wrong:
            believed[index] = row
            continue
        bare = {name: row.get(name) for name in named}
        withheld = {**bare, "status": row["status"], "reason": row.get("reason")}
        if row["status"] == "ok" or any(faults(plan.benchmark, [_texts(withheld)])):
            reason = f"its process said what cannot have been measured: {wrong[case]}"
            withheld = {**bare, "status": "failed_check", "reason": reason}
        believed[case] = withheld
    return list(believed.values())


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: text_of(value) for name, value in row.items()}


def _record_environment(project: Project, device_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Put the facts of this environment into the store, beside those of earlier ones."""
    known, _ = project.known_facts()
    facts = {**_facts_of_today(project), **device_facts}
    known["environments"][project.machine.environment] = facts
    write_facts(project.store, known)
    return facts


def _facts_of_today(project: Project) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    config = project.config
    known = {"peers": config.peer_versions(), "implementations": config.custom_entries()}
    known = {name: value for name, value in known.items() if value}
    return {**project.machine.facts, **known, **commit_facts(), "measured_at": now}
