"""Measure what is due of a plan, and record each group of rows as soon as it is measured."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case
from lmperf.errors import UserError
from lmperf.evidence import changes
from lmperf.evidence.facts import FILE, read_facts, write_facts
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import BENCHMARK, STEM, Repeats, second_times
from lmperf.evidence.rows import fault
from lmperf.evidence.store import (
    COST,
    COST_COLUMNS,
    DIGEST,
    EVIDENCE,
    STORE,
    RowFiles,
    locked_file,
    now,
)
from lmperf.machine.repository import commit_words, lmperf_version
from lmperf.measuring.gpus import visible_gpus
from lmperf.measuring.lock import locked
from lmperf.measuring.progress import Progress, saying_to
from lmperf.measuring.supervisor import Supervisor

Rows = list[dict[str, Any]]
Append = Callable[[Rows], None]


def record(
    project: Project,
    plan: Plan,
    only: Collection[Case] | None = None,
    log: Path | None = None,
    check: Case | None = None,
) -> None:
    """Measure the groups that are due, and write the view.

    Args:
        only: measure just the groups that have one of these cases.
        log: file that gets the lines of the progress as well.
        check: a case that is checked first. It has rows if it fails, and then nothing is measured.

    Raises:
        UserError: this is not the machine that measures, or no worker starts.
    """
    with _Job(project, plan.stem, plan.gpus, log) as job:
        plan = dataclasses.replace(plan)  # another run may have measured some cases meanwhile
        rows, damaged = plan.files.known()
        for words in damaged:
            job.note(words)
        if damaged:
            plan.files.mend(rows)
        if plan.ahead:
            job.note(plan.ahead)
        groups = [group for group in plan.groups if only is None or not {*group}.isdisjoint(only)]
        if groups:
            changes.keep(project, plan)
            job.measure(plan, groups, plan.files.append, check)
        plan.files.publish(dataclasses.replace(plan).rows)


def repeat(project: Project, log: Path | None = None) -> None:
    """Measure rows that are due a second time, on other GPUs than the first time if this process
    may use as many; see `record`.
    """
    for first in sorted({row["gpus"] for _, _, row in project.repeats.due}) or [""]:
        _repeat(project, first, log)


def _repeat(project: Project, first: str, log: Path | None) -> None:
    """Measure a second time what some GPUs measured first."""
    before = first.split(";")
    others, number = [other for other in visible_gpus() if other not in before], len(before)
    with _Job(project, STEM, number, log, others if len(others) >= number else None) as job:
        plans = tuple(dataclasses.replace(plan) for plan in project.plans.values())
        repeats, again = Repeats(project.directory, plans), second_times(project.directory)
        due = [repeat for repeat in repeats.due if repeat[2]["gpus"] == first]
        for plan in plans:
            cases = dict.fromkeys(case for by, case, _ in due if by is plan)
            if not cases:
                continue
            phases = {row["phase"] for by, _, row in due if by is plan}
            left = tuple(phase for phase in plan.benchmark.phases if phase in phases)
            alone = plan.with_benchmark(phases=left)
            stem = {BENCHMARK: plan.stem}
            job.measure(
                alone,
                alone.benchmark.groups(cases),
                lambda rows, stem=stem: again.append([{**stem, **row} for row in rows]),
            )
        again.publish(Repeats(project.directory, plans).rows)


class _Job:
    """A job that measures: holds the lock of its devices, signs rows, and counts what it costs."""

    def __init__(
        self,
        project: Project,
        stem: str,
        gpus: int,
        log: Path | None,
        among: Sequence[str] | None = None,
    ):
        if not project.machine.runs_here:
            raise UserError(
                f"{project.machine.slug} measures in jobs of a cluster; here is no CUDA device"
            )
        _require_own(project.directory)
        self._project, self._stem, self._number, self._among = project, stem, gpus, among
        self._say = saying_to(log)
        self._cost = RowFiles(project.directory, COST, COST_COLUMNS)
        # Jobs on other GPUs write files of the same folder, which itself NFS could not lock.
        self._lock = project.directory / STORE / "lock"
        self._commit, _ = project.commit_facts()
        self._version = lmperf_version(project.root)
        self._stack, self._groups = ExitStack(), 0

    def __enter__(self) -> _Job:
        of_devices = locked(self._project.machine.kind, self._number, self.note, self._among)
        self._locks, self._gpus = self._stack.enter_context(of_devices)
        self._started = datetime.now(UTC)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._groups:
            with locked_file(self._lock):
                self._cost.publish(self._cost.known()[0])

    def note(self, words: str) -> None:
        """Show a line to the user."""
        self._say(f"[{self._stem}] {words}")

    def measure(
        self, plan: Plan, groups: Sequence[list[Case]], append: Append, check: Case | None = None
    ) -> None:
        """Measure groups, after a check of a case; `append` gets the signed rows of each."""
        groups = [*([[check]] if check else []), *groups]
        progress = Progress(self._stem, sum(map(len, groups)), self._say)
        kind = self._project.machine.kind
        plan = plan.with_benchmark(traces=self._project.directory / "traces")
        supervisor = Supervisor(plan.benchmark, kind, progress, self._locks, self._gpus)

        def save(group: Sequence[Case], rows: Rows) -> None:
            at = now()  # the rows of a case belong together by this time
            signed = [self._signed(plan, row, at) for row in rows]
            append(signed)
            self._groups += 1
            self._record(supervisor.facts)
            statuses = Counter(row["status"] for row in signed)
            words = ", ".join(f"{number} {status}" for status, number in statuses.items())
            words = words or "its check is passed"
            progress.done(len(group), f"{plan.benchmark.group_name(group[0].cell)}: {words}")

        supervisor.measure(groups, save, check is not None)

    def _signed(self, plan: Plan, row: dict[str, Any], at: str) -> dict[str, Any]:
        """Return a row with what identifies its measurement; one that is impossible, as failed."""
        if words := fault(plan.benchmark, row):
            row = {name: row.get(name) for name in (*plan.benchmark.identity, "seed")}
            reason = f"its worker reported what cannot be measured: {words}"
            row |= {"status": "failed_check", "reason": reason}
        return {
            **row,
            "environment": plan.machine.environment,
            "gpus": ";".join(self._gpus),
            "commit": commit_words(self._commit),
            "measured_at": at,
            "key": plan.key(row),
        }

    def _facts(self) -> dict[str, Any]:
        """The facts of the environment that measures."""
        return {
            **self._project.machine.facts,
            "peers": self._project.config.peer_versions(),
            "implementations": self._project.config.declarations(),
            "lmperf": self._version,
            "measured_at": now(),
            **self._commit,
        }

    def _record(self, software: Mapping[str, Any]) -> None:
        """Record the environment in `machine.json`, and what the job has cost so far."""
        project, until = self._project, datetime.now(UTC)
        with locked_file(self._lock):
            facts = project.known_facts()
            environments = facts["environments"]
            environments.pop(project.machine.environment, None)  # the newest is the last
            environments[project.machine.environment] = {**self._facts(), **software}
            write_facts(project.directory, facts)
        row = {
            "stem": self._stem,
            "started_at": self._started.isoformat(timespec="milliseconds"),
            "measured_at": until.isoformat(timespec="milliseconds"),
            "groups": self._groups,
            "wall_s": round((until - self._started).total_seconds(), 3),
            "gpus": ";".join(self._gpus),
        }
        self._cost.append([row])


def _require_own(directory: Path) -> None:
    """Raise UserError if the folder of a machine has evidence, none of which lmperf wrote."""
    tables = [*directory.glob(f"{EVIDENCE}/*.csv"), *directory.glob(f"{STORE}/*.csv")]
    facts = directory / FILE
    files = [*tables, *([facts] if facts.exists() else [])]
    is_ours = any(re.search(rf"(?m)^{DIGEST}\W".encode(), table.read_bytes()) for table in tables)
    if files and not is_ours and (not facts.exists() or read_facts(directory)[1]):
        raise UserError(
            f"{files[0]} is there already, and lmperf did not write it: move it, or give this"
            " machine another name in the configuration"
        )
