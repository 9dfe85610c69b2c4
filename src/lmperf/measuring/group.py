"""Measures a group: cases that are timed in turn (interleaved), so that their times compare.

A case is one implementation in one cell (its shape, dtype and other axes). The cases of a group are
prepared in worker processes, timed, and turned into rows.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lmperf.benchmark import Benchmark, Case
from lmperf.measuring.history import MOST_TIMEOUTS, GroupLosses, RunHistory
from lmperf.measuring.process import CheckFailed, WorkerLost
from lmperf.measuring.rounds import SliceResult, Timings, pace_of, time_in_turn
from lmperf.measuring.state import DRIFT
from lmperf.measuring.workers import Workers

Row = dict[str, Any]


@dataclass(frozen=True)
class Assignment:
    """A case (an implementation in a cell) and the name of the worker that is to run it."""

    worker: str
    case: Case


Entry = tuple[Assignment, str]  # assignment and phase
Rows = dict[Entry, list[Row]]


class MustPrepareAgain(Exception):
    """Raised if a worker was lost while a phase was timed.

    Attributes:
        workers: names of the workers that must prepare their cases again.
    """

    def __init__(self, *workers: str):
        super().__init__(*workers)
        self.workers = workers


class Group:
    """Measures a group of cases in turn, and returns their rows.

    Implements `rounds.Timer`, where an entry is an (assignment, phase) pair. When a case first
    makes a worker crash, the case moves to a new worker that runs no other case. The other cases
    are prepared again in a new process under the old name: see `lmperf.measuring.history`.

    Args:
        workers: the worker processes.
        history: timeouts, repeats and drift in the earlier groups of the run.
        benchmark: the benchmark of the cases.
        assignments: the cases, in the order of their rows.
        seed: seed of the inputs.
        again: whether the first case of each dtype is also timed against itself (an A/A test).
    """

    def __init__(
        self,
        workers: Workers,
        history: RunHistory,
        benchmark: Benchmark,
        assignments: Sequence[Assignment],
        seed: int,
        again: bool = True,
    ):
        self._workers, self._history, self._benchmark = workers, history, benchmark
        self._assignments, self._seed, self._again = list(assignments), seed, again
        # Assignment -> the name of the worker that runs the case now.
        self._worker_of = {one: one.worker for one in assignments}
        # Worker name -> id of the process that prepared the worker's cases.
        self._prepared_by: dict[str, int | None] = {}
        self._losses = GroupLosses()
        self._rows: Rows = {}
        # Entries that are prepared and passed the correctness gate -> columns known before timing.
        self._ready: dict[Entry, Row] = {}
        # Phases that the command did not select; the benchmark in a worker has all phases.
        self._left_out = {*type(benchmark).phases} - {*benchmark.phases}

    def observe(self) -> Rows:
        """Return the rows of an observed benchmark, which records e.g. bytes and is not timed."""
        for worker in self._current_workers():
            self._complete(worker, "observe")
        return self._in_order()

    def time(self) -> Rows:
        """Time all phases of a timed benchmark, and return the rows.

        Times the phases once more if the times of the reference cell (a fixed matmul and copy) had
        drifted and have recovered.
        """
        self._workers.start(self._current_workers())
        for worker in self._current_workers():
            self._complete(worker, "prepare")
        before = self._reference()
        self._time_phases()
        after = self._reference()
        if self._drifted(before, after) and self._history.may_repeat:
            before = self._reference()
            if not self._drifted(before):  # else the repeated rows would be marked `drift` too
                self._time_phases()
                after = self._reference()
            self._history.repeated(disturbed=self._drifted(before, after))
        self._write_reference(after, self._drifted(before, after))
        for worker in {*self._current_workers()} & {*self._workers.names}:
            with contextlib.suppress(WorkerLost):
                self._ask(worker, "clear")
        return self._in_order()

    def dtype(self, entry: Entry) -> str | None:
        """See `rounds.Timer`."""
        return dtype_of(entry[0].case)

    def warm_up(self, entry: Entry, least_ms: float) -> tuple[float, float] | None:
        """See `rounds.Timer`."""
        return self._ask_timing(entry, "warm_up", least_ms)

    def slice(self, entry: Entry, repetitions: int, checked: bool) -> SliceResult | None:
        """See `rounds.Timer`. A slice fails if the worker's clock disagrees with this process's."""
        watch = self._workers.watch
        began = time.perf_counter_ns()
        watch.begin()
        found = self._ask_timing(entry, "slice", repetitions, checked, on_wait=watch.sample)
        state = watch.end()
        if found is None:
            return None
        here = began, time.perf_counter_ns()
        if reason := clock_fault(here, found.pop("interval_ns"), found["times"]):
            self._fail(entry, {"status": "failed_check", "reason": reason})
            return None
        return SliceResult(state=state, **found)

    def _current_workers(self) -> list[str]:
        return list(dict.fromkeys(self._worker_of.values()))

    def _in_order(self) -> Rows:
        entries = [(one, phase) for phase in self._benchmark.phases for one in self._assignments]
        # A worker with an older version of the code may lack a phase.
        return {entry: self._rows[entry] for entry in entries if entry in self._rows}

    def _complete(self, worker: str, request: str) -> None:
        """Send `request` to a worker until all of its cases are prepared or have rows."""
        while True:
            self._ready = {
                e: row for e, row in self._ready.items() if self._worker_of[e[0]] != worker
            }
            self._skip_timed_out()
            pending = self._pending(worker)
            if not pending:
                return
            try:
                self._ask(worker, request, *self._arguments(worker))
                self._prepared_by[worker] = self._workers.pid_of(worker)
                return
            except WorkerLost as lost:
                self._rows.pop(self._entry_of(worker, lost), None)  # drop incomplete observations
                moved = self._record_loss(worker, lost, pending[0])
                if moved not in (None, worker):
                    self._complete(moved, request)

    def _pending(self, worker: str) -> list[Assignment]:
        """Return the cases of a worker that have no row for at least one phase."""
        phases = self._benchmark.phases
        return [
            one
            for one, at in self._worker_of.items()
            if at == worker and any((one, phase) not in self._rows for phase in phases)
        ]

    def _arguments(self, worker: str) -> tuple:
        """Return the arguments of the requests `prepare` and `observe` to a worker.

        Phases that have rows, and phases that the command did not select, are skipped.
        """
        ours = [one for one, at in self._worker_of.items() if at == worker]
        skipped = {(one.case, phase) for one, phase in self._rows if one in ours}
        skipped |= {(one.case, phase) for one in ours for phase in self._left_out}
        made_of = self._benchmark.entry, self._benchmark.stem, self._benchmark.external
        return *made_of, [one.case for one in ours], skipped, self._seed

    def _skip_timed_out(self) -> None:
        """Record `timeout` for implementations that already timed out twice."""
        row = {"status": "timeout", "reason": "skipped: it timed out twice before in this run"}
        for one in self._assignments:
            if self._history.timeouts[one.worker, one.case.implementation] >= MOST_TIMEOUTS:
                for phase in self._benchmark.phases:
                    self._rows.setdefault((one, phase), [dict(row)])
                    self._ready.pop((one, phase), None)

    def _ask(self, worker: str, *request: Any, on_wait: Callable[[], None] | None = None) -> Any:
        def on_message(kind: str, case: Case, phase: str | None, what: Any) -> None:
            if kind == "step":
                self._workers.on_step(what, case, phase)
            elif kind == "row":
                self._rows.setdefault((self._find(worker, case), phase), []).append(what)
            elif kind == "ready":
                self._ready[self._find(worker, case), phase] = what

        limit_s = self._benchmark.limit_s
        return self._workers.ask(
            worker, *request, limit_s=limit_s, on_message=on_message, on_wait=on_wait
        )

    def _ask_timing(
        self, entry: Entry, request: str, *arguments: Any, on_wait: Callable | None = None
    ) -> Any:
        """Send a request about an entry to its worker, and return the answer.

        If the worker finds a result wrong, records a failed row and returns None.

        Raises:
            MustPrepareAgain: the worker was lost.
        """
        one, phase = entry
        worker = self._worker_of[one]
        self._workers.on_step("timing", one.case, phase)
        try:
            return self._ask(worker, request, one.case, phase, *arguments, on_wait=on_wait)
        except CheckFailed as failed:
            self._fail(entry, failed.row)
            return None
        except WorkerLost as lost:
            moved = self._record_loss(worker, lost, one, phase)
            raise MustPrepareAgain(*dict.fromkeys((worker, moved or worker))) from None

    def _fail(self, entry: Entry, row: Row) -> None:
        """Replace a ready entry by a failed row, so that the entry is no longer timed."""
        self._rows[entry] = [{**self._ready.pop(entry), **row}]

    def _find(self, worker: str, case: Case) -> Assignment:
        return next(one for one, at in self._worker_of.items() if (at, one.case) == (worker, case))

    def _entry_of(self, worker: str, lost: WorkerLost) -> tuple[Assignment, str | None] | None:
        """Return the case and phase that a lost worker was running; None if it named no case."""
        return None if lost.case is None else (self._find(worker, lost.case), lost.phase)

    def _record_loss(
        self, worker: str, lost: WorkerLost, default: Assignment, phase: str | None = None
    ) -> str | None:
        """Record rows for a lost worker, or move the case that it was running to a new worker.

        Returns the name of the new worker; None if rows were recorded. `default` and `phase` are
        the case and phase to assume if the worker named none.
        """
        one, phase = self._entry_of(worker, lost) or (default, phase)
        row = self._losses.row(one, phase, lost, one.case.name)
        if row is None:
            self._worker_of[one] = self._workers.isolate(one.worker, one.case)
            return self._worker_of[one]
        if row["status"] == "timeout":
            self._history.timeouts[one.worker, one.case.implementation] += 1
        for name in self._benchmark.phases if phase is None else [phase]:
            if phase is not None or (one, name) not in self._rows:
                self._rows[one, name] = [row]
            self._ready.pop((one, name), None)
        return None

    def _time_phases(self) -> None:
        for phase in self._benchmark.phases:
            self._time_phase(phase)

    def _time_phase(self, phase: str) -> None:
        """Time one phase of all cases in turn; start over if a worker is lost."""
        pace = pace_of(self._benchmark.clock, self._workers.device, self._benchmark.patient)
        while True:
            self._prepare_replaced()
            self._skip_timed_out()
            ready = [(one, phase) for one in self._assignments if (one, phase) in self._ready]
            if not ready:
                return
            try:
                timings = time_in_turn(ready, self, pace, again=self._again)
                if _loaded(timings) and self._history.may_repeat:
                    timings = time_in_turn(list(timings), self, pace, again=self._again)
                    self._history.repeated(disturbed=_loaded(timings))
                self._write(timings)
            except MustPrepareAgain as lost:
                for worker in lost.workers:
                    self._complete(worker, "prepare")
            else:
                return

    def _prepare_replaced(self) -> None:
        """Prepare cases again if the process that prepared them was replaced by a new one."""
        for worker in {self._worker_of[one] for one, _ in self._ready}:
            if self._workers.pid_of(worker) != self._prepared_by[worker]:
                self._complete(worker, "prepare")

    def _write(self, timings: dict[Entry, Timings]) -> None:
        """Write the rows of all entries, or of none if a worker is lost meanwhile.

        The rows share an id in the column `together`, since only times taken in turn may be paired.
        """
        together, found = uuid.uuid4().hex[:12], {}
        for entry, timing in timings.items():
            columns = timing.columns()
            host = self._ask_timing(entry, "host_and_loop", columns["median_ms"])
            if host is not None:
                row = {
                    "status": "ok",
                    **columns,
                    "together": together,
                    **self._ready[entry],
                    **host,
                }
                found[entry] = [row | achieved(row)]
        self._rows |= found

    def _reference(self) -> float | None:
        """Return the ratio of the reference cell's time to its first time; None if unknown."""
        times = self._workers.reference_times()
        return None if times is None else self._history.drift(times)

    def _drifted(self, *ratios: float | None) -> bool:
        limit = DRIFT[self._workers.device]
        return any(ratio is not None and abs(ratio - 1) > limit for ratio in ratios)

    def _write_reference(self, reference: float | None, drifted: bool) -> None:
        for row in (row for rows in self._rows.values() for row in rows if "median_ms" in row):
            row["reference"] = reference
            if drifted:
                row["marks"] = ";".join(filter(None, [row["marks"], "drift"]))


def dtype_of(case: Case) -> str | None:
    """Return the dtype of a case; None if the benchmark has no axis `dtype`."""
    return case.axes.get("dtype")


def clock_fault(
    here: tuple[int, int], in_worker: tuple[int, int], times: Sequence[float]
) -> str | None:
    """Return why the times of a slice cannot be true; None if they agree with this process's clock.

    All processes of a machine share one monotonic clock. So the slice must lie within the time from
    the request to the answer, and the calls must not add up to more than the slice.

    Args:
        here: times in ns when this process sent the request and received the answer.
        in_worker: times in ns when the slice began and ended by the worker's clock.
        times: ms of each call in the slice.
    """
    here_ms, worker_ms = ((end - begin) / 1e6 for begin, end in (here, in_worker))
    if here[0] <= in_worker[0] <= in_worker[1] <= here[1] and sum(times) <= worker_ms:
        return None
    return (
        f"its clock is wrong: it reports {worker_ms:.3g} ms, of which {sum(times):.3g} ms in calls,"
        f" for a slice that took {here_ms:.3g} ms by the supervisor's clock"
    )


def take_noise(row: Row, twin: Row) -> None:
    """Store the times of `twin` in the column `again_ms` of `row`, if both rows were timed.

    `twin` is the row of the same case in a second process: together they are an A/A test.
    """
    if "rounds_ms" in row and "rounds_ms" in twin:
        row["again_ms"] = twin["rounds_ms"]


def achieved(row: Row) -> Row:
    """Return the columns TFLOP/s and GB/s of a row, computed from its median time."""
    seconds = row["median_ms"] / 1e3
    columns: Row = {}
    if row.get("flops"):
        columns["tflops"] = row["flops"] / seconds / 1e12
    if row.get("bytes"):
        columns["bandwidth_gbps"] = row["bytes"] / seconds / 1e9
    return columns


def _loaded(timings: dict[Entry, Timings]) -> bool:
    return any(timing.state.loaded for timing in timings.values())
