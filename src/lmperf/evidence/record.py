"""Measure the pending groups of a plan and write their rows into the store, group by group."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case
from lmperf.custom import broken_ones
from lmperf.errors import UserError
from lmperf.evidence import changes
from lmperf.evidence.closure import not_followed
from lmperf.evidence.consistent import RETAKEN
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, read_facts, write_facts
from lmperf.evidence.machine import commit_facts, lmperf_version
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import BENCHMARK, Repeats
from lmperf.evidence.schema import faults
from lmperf.evidence.store import (
    EVIDENCE,
    STORE,
    DamagedEvidence,
    locked,
    no_later_than_now,
    set_aside,
    text_of,
)
from lmperf.measuring import forecast
from lmperf.measuring.cold_cache import empty_compile_cache
from lmperf.measuring.forecast import Forecast
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.progress import Reporter
from lmperf.measuring.readings import HOST
from lmperf.measuring.run import measure, measure_alone
from lmperf.measuring.stopwatch import Stopwatch

Groups = Sequence[list[Case]]


def record(
    project: Project,
    plan: Plan,
    log: Path | None = None,
    age: float = 0.0,
    groups: Groups | None = None,
    later: Sequence[Plan | Repeats] = (),
) -> Counter[str]:
    """Measure the pending groups of a plan and write its evidence; return new rows by status.

    Args:
        log: file to write the progress to; None: no file.
        age: seconds that this process had run before the call; they are part of the job's cost.
        groups: the groups to measure instead of the pending ones.
        later: what the same run measures after this job; it counts in the time left.

    Raises:
        UserError: rows of several ranks would stand beside others with other settings of NCCL.
    """
    watch = Stopwatch(age)
    if isinstance(plan, Plan) and plan.benchmark.least_devices > 1:
        require_same_nccl(project)
    groups = plan.pending if groups is None else groups
    left = _forecast(project, _named(plan, groups), later, age)
    with Reporter(plan.stem, len(groups), log, left) as reporter:
        with locked(project.directory):
            _repair(project, plan, reporter)
        _warn_of_untracked_imports(plan, reporter)
        # Benchmarks that write files of their own (the traces of `profiles`) put them here.
        os.environ["LMPERF_TRACES"] = str(project.directory / "traces")
        statuses = _measure(project, plan, groups, reporter, watch, left) if groups else Counter()
    _write_evidence(project, dataclasses.replace(plan))  # the copy reads the files again
    return statuses


def require_same_nccl(project: Project) -> None:
    """Check that NCCL has the settings of the machine's other rows; older rows recorded none.

    Raises:
        UserError: it has others.
    """
    machine = project.machine
    known = project.known_facts()[0]["environments"].get(machine.environment, {})
    then, now = known.get("nccl"), machine.facts.get("nccl")
    if then is not None and then != now:
        raise UserError(
            f"{machine.slug} was measured with {_words(then)}, and now there is {_words(now)}:"
            " set the same variables, or measure as another machine, with --config machine=NAME"
        )


def _words(nccl: Mapping[str, str] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (nccl or {}).items()) or "no NCCL_*"


def _forecast(
    project: Project,
    groups: forecast.Groups,
    later: Sequence[Plan | Repeats] = (),
    age: float = 0.0,
) -> Forecast:
    """Return the forecast of a job, scaled by what earlier jobs on this machine took."""
    jobs = [job for job in project.known_costs() if job["expected_s"]]
    took, expected = (sum(float(job[name]) for job in jobs) for name in ("wall_s", "expected_s"))
    of_later = [
        _repeated(one) if isinstance(one, Repeats) else _named(one, one.pending) for one in later
    ]
    return Forecast(project.machine.kind, groups, of_later, (took, expected), age)


def _named(plan: Plan, groups: Groups) -> forecast.Groups:
    """The benchmark, the name and the number of cases of each group."""
    name = plan.benchmark.group_name
    return [(plan.stem, name(group[0].cell), len(group)) for group in groups]


def _repeated(repeats: Repeats) -> forecast.Groups:
    """The rows that are due a second time: each is one phase of a case."""
    return [
        (of.stem, of.group_name(one.case.cell), 1 / len(type(of).phases))
        for one, _ in repeats.due
        for of in (one.benchmark,)
    ]


def _write_evidence(project: Project, plan: Plan | Repeats) -> None:
    """Write a job's published CSV, `machine.json` and `cost.csv` from the store."""
    with locked(project.directory):  # jobs on other GPUs write the same two files
        facts, _ = project.known_facts()
        if project.machine.environment not in facts["environments"]:  # machine.json was lost
            facts["environments"][project.machine.environment] = _current_facts(project)
        for directory in (project.store, project.directory):
            write_facts(directory, facts)
        Cost(project.directory).hold(project.known_costs())
    plan.evidence.hold(plan.rows)
    # Snakemake compares modification times, even if the content of an output did not change.
    no_later_than_now(plan.evidence.path.parent.glob("*.csv"))
    os.utime(plan.evidence.path)


def _repair(project: Project, plan: Plan | Repeats, reporter: Reporter) -> None:
    """Report damaged files, rename them to `*.damaged`, and put all intact rows into the store."""
    if plan.differing:
        reporter.note(
            f"{plan.store.path} and {plan.evidence.path} differ in {len(plan.differing)} cases that"
            " were measured once: neither copy counts, and they are measured again"
        )
    for path, lines in plan.damaged.items():
        aside = set_aside(path)
        more = f" and {len(lines) - 1} more faults" if len(lines) > 1 else ""
        reporter.note(f"{lines[0]}{more}; moved to {aside.name}, intact rows are kept")
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
    if plan.differing:  # else a job that is killed now would leave one of the copies
        plan.evidence.hold(plan.rows)


def _warn_of_untracked_imports(plan: Plan, reporter: Reporter) -> None:
    for module in sorted({one.module for one in plan.benchmark.external.values()}):
        if names := not_followed(module):
            reporter.note(
                f"{module} imports {', '.join(names)}, whose source cannot be followed: a change"
                " there makes no row stale"
            )


def _measure(
    project: Project,
    plan: Plan,
    groups: Groups,
    reporter: Reporter,
    watch: Stopwatch,
    left: Forecast,
) -> Counter[str]:
    broken = broken_ones(plan.benchmark)
    for name, words in broken.items():
        reporter.note(
            f"{name} is not measured: {words} (if the cause lies outside its source, fix it and"
            " retry with --retry-failed)"
        )
    changes.keep(project, plan)
    saved_groups = saved_rows = 0

    def save(rows: list[dict[str, Any]], device_facts: Mapping[str, Any]) -> None:
        nonlocal saved_groups, saved_rows
        saved_groups, saved_rows = saved_groups + 1, saved_rows + len(rows)
        facts = _record_environment(project, device_facts)
        signed = [_signed(plan, row, facts) for row in rows]
        plan.store.replace(_without_implausible(plan, signed))
        job = watch.row(plan.stem, project.preset, saved_groups, saved_rows)
        _record_cost(project, job, left.expected_until(saved_groups), device_facts, plan.gpus)

    with empty_compile_cache():
        return measure(
            plan.benchmark,
            groups,
            project.machine.kind,
            save,
            reporter,
            watch,
            broken,
            best_of_host(project),
            plan.quick,
        )


def best_of_host(project: Project) -> dict[str, float]:
    """Return the shortest known time of each of the host's references, in this environment.

    Each row holds the longest of its group's readings, so that a single lucky one does not count.
    """
    environment = project.machine.environment
    known = [row for plan in project.plans.values() for row in plan.known]
    times = {
        name: [
            float(row[name]) for row in known if row.get(name) and row["environment"] == environment
        ]
        for name in HOST
    }
    return {name: min(found) for name, found in times.items() if found}


def _signed(plan: Plan, row: dict[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new row with its key, environment, GPUs, commit and time of measurement added."""
    commit = (facts["commit"] or "unknown")[:12] + ("-dirty" if facts["dirty"] else "")
    return {
        **row,
        **({RETAKEN: True} if plan.retakes(row) else {}),
        "environment": plan.environment,
        "gpus": _gpus(facts, plan.gpus),
        "commit": commit,
        # In ms, so that two measurements of a case differ: see `Plan.differing`.
        "measured_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "key": plan.key(row),
    }


def _without_implausible(plan: Plan, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace a case that has an implausible row by one failed row.

    An implementation runs in the worker process and could tamper with the rows that this process
    sends. A case that already failed keeps its status and reason; its numbers are dropped.
    """
    case_of, texts = plan.store.case_of, [_texts(row) for row in rows]
    wrong = {case_of(texts[index]): words for index, words in faults(plan.benchmark, texts)}
    last = ("seed", "environment", "gpus", "commit", "measured_at", "key")
    kept = (*plan.store.case_columns, *last)
    found: dict[Any, dict[str, Any]] = {}
    for index, (row, text) in enumerate(zip(rows, texts, strict=True)):
        case = case_of(text)
        if case not in wrong:
            found[index] = row
            continue
        bare = {name: row.get(name) for name in kept}
        failed = {**bare, "status": row["status"], "reason": row.get("reason")}
        if row["status"] == "ok" or any(faults(plan.benchmark, [_texts(failed)])):
            reason = f"its worker reported values that cannot be measured: {wrong[case]}"
            failed = {**bare, "status": "failed_check", "reason": reason}
        found[case] = failed
    return list(found.values())


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: text_of(value) for name, value in row.items()}


def _record_environment(project: Project, device_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Add the facts of the current environment to `machine.json` in the store; return them."""
    facts = {**_current_facts(project), **device_facts}
    with locked(project.directory):
        known, _ = project.known_facts()
        known["environments"][project.machine.environment] = facts
        write_facts(project.store, known)
    return facts


def _record_cost(
    project: Project,
    job: Mapping[str, Any],
    expected_s: float | None,
    device_facts: Mapping[str, Any],
    number: int,
) -> None:
    """Write the row of a job to `cost.csv` in the store, with the GPUs, so many, that measured."""
    with locked(project.directory):
        row = {**job, "expected_s": expected_s, "gpus": _gpus(device_facts, number)}
        Cost(project.directory, STORE).replace([row])


def _gpus(facts: Mapping[str, Any], number: int) -> str:
    """The UUIDs of the GPUs of this job, so many, separated by semicolons; empty without a GPU.

    facts: of the device, with `uuid`, or `uuids` of several.
    """
    visible = facts.get("uuids") or [facts.get("uuid") or ""]
    return ";".join(MACHINE.gpus or visible[:number])


def _current_facts(project: Project) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    config = project.config
    known = {"peers": config.peer_versions(), "implementations": config.custom_entries()}
    known = {name: value for name, value in known.items() if value}
    known["lmperf"] = lmperf_version(project.root)
    return {**project.machine.facts, **known, **commit_facts(project.root), "measured_at": now}


def repeat(
    project: Project, repeats: Repeats, log: Path | None = None, age: float = 0.0
) -> Counter[str]:
    """Measure the drawn rows that are due a second time; return the new rows by status.

    The arguments `log` and `age` are those of `record`.
    """
    watch, statuses = Stopwatch(age), Counter[str]()
    due = [one for one, _ in repeats.due]
    plans = [
        dataclasses.replace(project.plans[one.benchmark.stem], benchmark=one.benchmark)
        for one in due
    ]
    next_plan = iter(plans)

    def save(rows: list[dict[str, Any]], device_facts: Mapping[str, Any]) -> None:
        plan = next(next_plan)
        facts = _record_environment(project, device_facts)
        signed = _without_implausible(plan, [_signed(plan, row, facts) for row in rows])
        repeats.store.replace([{BENCHMARK: plan.stem, **row} for row in signed])
        statuses.update(str(row["status"]) for row in signed)
        number = statuses.total()
        job = watch.row(repeats.stem, project.preset, number, number)
        gpus = max(plan.gpus for plan in plans)
        _record_cost(project, job, left.expected_until(number), device_facts, gpus)

    left = _forecast(project, _repeated(repeats), age=age)
    with Reporter(repeats.stem, len(due), log, left, "row") as reporter:
        with locked(project.directory):
            _repair(project, repeats, reporter)
        if due:
            cases = [(one.benchmark, one.case) for one in due]
            with empty_compile_cache():
                best = best_of_host(project)
                measure_alone(cases, project.machine.kind, save, reporter, watch, best)
    _write_evidence(project, dataclasses.replace(repeats))  # the copy reads the files again
    return statuses
