"""Times two versions of the code, interleaved, case by case, each in its own worker process.

The workers prepare one case at a time, so that only its inputs are on the device, once per worker,
and time a slice of its calls when they are asked to.
"""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from lmperf.benchmark import Case, Timed, ranks_of
from lmperf.comparing.versions import Version
from lmperf.errors import UserError
from lmperf.evidence.plan import Plan
from lmperf.measuring.job import Job
from lmperf.measuring.lock import locked
from lmperf.measuring.process import Lost, Process
from lmperf.measuring.progress import Progress
from lmperf.measuring.rounds import in_turn, pace_of
from lmperf.measuring.sensors import MOST_LOAD, Load
from lmperf.measuring.supervisor import empty_cache

Row = dict[str, Any]
OLD, NEW = "old", "new"
_START_LIMIT_S = 180.0  # until a worker has imported torch


def time_versions(
    device: str, sides: Mapping[str, Version], chosen: Sequence[Plan], progress: Progress
) -> dict[str, dict[str, list[Row]]]:
    """Time the chosen cases; returns side -> stem of a benchmark -> rows.

    sides: the versions `OLD` and `NEW`. A case that does not fit into memory once per worker is out
    of memory.

    Raises:
        UserError: no worker of a version starts.
    """
    rows: dict[str, dict[str, list[Row]]] = {OLD: {}, NEW: {}}
    number = max(ranks_of(plan.benchmark, case) for plan in chosen for case in plan.cases)
    with locked(device, number, progress.note) as (locks, gpus), empty_cache() as cache:
        for plan in chosen:
            benchmark, left = plan.benchmark, list(plan.cases)
            while left:
                job = Job(benchmark, device, [[case] for case in left], on_request=True)
                with ExitStack() as stack:
                    environ = job.environ(cache, gpus)
                    workers = {
                        side: _Worker(version, job, locks, environ)
                        for side, version in sides.items()
                    }
                    for worker in workers.values():
                        stack.enter_context(worker.process)
                    while left and not any(worker.lost for worker in workers.values()):
                        case = left.pop(0)
                        timed = _rows_of(benchmark, case, workers, device)
                        for side, by_phase in timed.items():
                            rows[side].setdefault(benchmark.stem, []).extend(by_phase.values())
                        progress.done(1, f"{benchmark.stem}, {case.name}: {_in_words(timed)}")
    return rows


def _rows_of(
    benchmark: Timed, case: Case, workers: Mapping[str, _Worker], device: str
) -> dict[str, dict[str, Row]]:
    """Time the next case of all workers; return side -> phase -> row."""
    for worker in workers.values():
        worker.prepare()
    phases = benchmark.phases_of(case)
    for phase in phases:
        _time_in_turn(benchmark, phase, workers, device)
    for worker in workers.values():
        worker.process.send(next=True)
    return {
        side: {phase: {**case.columns, "phase": phase, **worker.row_of(phase)} for phase in phases}
        for side, worker in workers.items()
    }


def _time_in_turn(
    benchmark: Timed, phase: str, workers: Mapping[str, _Worker], device: str
) -> None:
    ready = [side for side, worker in workers.items() if phase in worker.columns]
    pace, others = pace_of(benchmark.clock, device, patient=True), Load(os.getpid())
    times_of = in_turn(
        ready, lambda side, calls: workers[side].time(phase, calls), pace, time.monotonic
    )
    load = others.share()
    marks = "loaded" if load > MOST_LOAD and device != "cuda" else ""
    more = {"together": uuid.uuid4().hex[:12], "other_load": load, "marks": marks}
    for side, times in times_of.items():
        columns = {"status": "ok", **workers[side].columns[phase], **more}
        workers[side].rows[phase] = {**columns, **times.columns}


class _Worker:
    """The worker of a version.

    Attributes:
        rows: phase -> row, of the current case.
        columns: phase -> columns known before its timing, of the phases that can be timed.
        lost: the status and reason of the case that ran when the worker was lost.
    """

    def __init__(
        self, version: Version, job: Job, locks: Sequence[int], environ: Mapping[str, str]
    ):
        self._name, self._limit_s = version.name, job.benchmark.limit_s
        self.process = Process(pickle.dumps(job), locks, environ, version.search_path)
        self.rows: dict[str, Row] = {}
        self.columns: dict[str, Row] = {}
        self.lost: Row | None = None
        self._has_started = False

    def prepare(self) -> None:
        """Wait until the worker has prepared its next case."""
        if not self._has_started and self._answer("ready", _START_LIMIT_S) is None:
            raise UserError(f"{self._name}: no worker can be started: {self.lost['reason']}")
        self._has_started, self.rows = True, {}
        self.columns = self._answer("columns", self._limit_s) or {}

    def time(self, phase: str, calls: int) -> tuple[list[float], float] | None:
        """Time calls; return ms of each, and of all with their overhead; None if they failed."""
        self.process.send(phase=phase, calls=calls)
        return self._answer("times", self._limit_s)

    def row_of(self, phase: str) -> Row:
        """The row of a phase of the current case."""
        return self.rows.get(phase) or self.lost or {"status": "crash", "reason": "it has no row"}

    def _answer(self, key: str, limit_s: float) -> Any:
        """Return what the worker answers under a key; None if it is lost."""
        while self.lost is None:
            try:
                message = self.process.receive(limit_s)
            except Lost as lost:
                self.lost = {"status": "crash", "reason": str(lost)}
                break
            match message:
                case None:
                    self.lost = {"status": "timeout", "reason": f"no answer within {limit_s:g} s"}
                case {"failed": row}:
                    self.lost = row
                case {"rows": [row], "phase": phase}:
                    self.rows[phase] = row
                case _ if key in message:
                    return message[key]
        return None


def _in_words(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """For the progress: time or status of the old and new version, phase by phase."""
    return "; ".join(
        f"{phase} {_time(row)} -> {_time(rows[NEW].get(phase, {}))}"
        for phase, row in rows[OLD].items()
    )


def _time(row: Row) -> str:
    median = row.get("median_ms")
    return row.get("status", "none") if median is None else f"{median:.4g} ms"
