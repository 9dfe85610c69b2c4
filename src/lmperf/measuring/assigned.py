"""Prepares the cases of a group in their workers, and continues when a worker is lost.

When a case first makes a worker crash, the case moves to a new worker that runs no other case. The
other cases are prepared again in a new process under the old name: see `lmperf.measuring.history`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmperf.benchmark import Benchmark, Case
from lmperf.measuring.faults import lacks_memory
from lmperf.measuring.history import MOST_TIMEOUTS, GroupLosses, RunHistory
from lmperf.measuring.process import CheckFailed, WorkerLost
from lmperf.measuring.twins import Assignment, fits
from lmperf.measuring.workers import Workers

Row = dict[str, Any]
Entry = tuple[Assignment, str]  # assignment and phase
Rows = dict[Entry, list[Row]]

# Request -> the step that it counts as in the progress and the cost of a job; others are "timing".
_STEPS = {"sustain": "back to back", "check_last": "back to back"}


class MustPrepareAgain(Exception):
    """Raised if a worker was lost while a phase was timed.

    Attributes:
        workers: names of the workers that must prepare their cases again.
    """

    def __init__(self, *workers: str):
        super().__init__(*workers)
        self.workers = workers


class AssignedCases:
    """The cases of a group, the workers that run them, and what is known of each phase.

    Args:
        workers: the worker processes.
        history: timeouts in the earlier groups of the run.
        benchmark: the benchmark of the cases.
        assignments: the cases, in the order of their rows.
        twins: case -> the same case in a second process, for an A/A test. A twin is left out if
            memory is short, and when it fails.
        seed: seed of the inputs.

    Attributes:
        rows: entry -> rows that are final.
        ready: entry that is prepared and passed the correctness gate -> columns known before
            timing.
        twins: the twins that are in use.
    """

    def __init__(
        self,
        workers: Workers,
        history: RunHistory,
        benchmark: Benchmark,
        assignments: Sequence[Assignment],
        twins: Mapping[Assignment, Assignment],
        seed: int,
    ):
        self._workers, self._history, self._benchmark = workers, history, benchmark
        self._seed, self._wanted_twins = seed, twins
        self.twins: dict[Assignment, Assignment] = {}
        # Assignment -> the name of the worker that runs the case now.
        self._worker_of = {one: one.worker for one in assignments}
        # Worker name -> id of the process that prepared the worker's cases.
        self._prepared_by: dict[str, int | None] = {}
        self._losses = GroupLosses()
        self.rows: Rows = {}
        self.ready: dict[Entry, Row] = {}
        # Phases that the command did not select; the benchmark in a worker has all phases.
        self._left_out = {*type(benchmark).phases} - {*benchmark.phases}

    @property
    def workers(self) -> list[str]:
        """The names of the workers that run the cases now."""
        return list(dict.fromkeys(self._worker_of.values()))

    def ready_for(self, phase: str) -> list[Entry]:
        """Return the entries of a phase that can be timed; twins follow the cases."""
        return [(one, phase) for one in self._worker_of if (one, phase) in self.ready]

    def complete(self, worker: str, request: str) -> None:
        """Send `request` to a worker until all of its cases are prepared or have rows."""
        while True:
            self.ready = {
                e: row for e, row in self.ready.items() if self._worker_of.get(e[0]) != worker
            }
            self.skip_timed_out()
            pending = self._pending(worker)
            if not pending:
                return
            try:
                self.ask(worker, request, *self._arguments(worker))
                self._prepared_by[worker] = self._workers.pid_of(worker)
                return
            except WorkerLost as lost:
                self.rows.pop(self._entry_of(worker, lost), None)  # drop incomplete observations
                moved = self._record_loss(worker, lost, pending[0])
                if moved not in (None, worker):
                    self.complete(moved, request)

    def add_twins(self) -> None:
        """Prepare the twins of the prepared cases, as far as they fit into the free memory."""
        for one, twin in self._wanted_twins.items():
            prepared = [row for (of, _), row in self.ready.items() if of == one]
            if prepared and fits(prepared, self._workers.watch.free_bytes()):
                self.twins[one], self._worker_of[twin] = twin, twin.worker
                self.complete(twin.worker, "prepare")

    def drop_twin(self, twin: Assignment) -> None:
        """Leave a twin out, and end the process that ran it."""
        worker = self._worker_of.pop(twin)
        self.twins = {one: other for one, other in self.twins.items() if other != twin}
        for known in (self.ready, self.rows):
            for entry in [entry for entry in known if entry[0] == twin]:
                del known[entry]
        if worker not in self._worker_of.values():
            self._workers.end(worker)

    def replaced_workers(self) -> list[str]:
        """Return the workers whose process is not the one that prepared their cases."""
        names = dict.fromkeys(self._worker_of[one] for one, _ in self.ready)
        return [name for name in names if self._workers.pid_of(name) != self._prepared_by[name]]

    def skip_timed_out(self) -> None:
        """Record `timeout` for implementations that already timed out twice."""
        row = {"status": "timeout", "reason": "skipped: it timed out twice before in this run"}
        for one in self._worker_of:
            if self._history.timeouts[one.worker, one.case.implementation] >= MOST_TIMEOUTS:
                for phase in self._benchmark.phases_of(one.case):
                    self.rows.setdefault((one, phase), [dict(row)])
                    self.ready.pop((one, phase), None)

    def ask(
        self,
        worker: str,
        *request: Any,
        on_wait: Callable[[], None] | None = None,
        lasts_s: float = 0.0,
    ) -> Any:
        """Send a request to a worker; keep the rows and ready phases that it reports.

        lasts_s: seconds that the request takes by design, beyond the limit of the benchmark.
        """

        def on_message(kind: str, case: Case, phase: str | None, what: Any) -> None:
            if kind == "step":
                self._workers.on_step(what, case, phase)
            elif kind == "row":
                self.rows.setdefault((self._find(worker, case), phase), []).append(what)
            elif kind == "ready":
                self.ready[self._find(worker, case), phase] = what

        limit_s = self._benchmark.limit_s + lasts_s
        return self._workers.ask(
            worker, *request, limit_s=limit_s, on_message=on_message, on_wait=on_wait
        )

    def ask_timing(self, entry: Entry, request: str, *arguments: Any, **more: Any) -> Any:
        """Send a request about an entry to its worker, and return the answer; `more` as for `ask`.

        If the worker finds a result wrong, records a failed row and returns None.

        Raises:
            MustPrepareAgain: the worker was lost.
        """
        one, phase = entry
        worker = self._worker_of[one]
        self._workers.on_step(_STEPS.get(request, "timing"), one.case, phase)
        try:
            return self.ask(worker, request, one.case, phase, *arguments, **more)
        except CheckFailed as failed:
            self.fail(entry, failed.row)
            return None
        except WorkerLost as lost:
            moved = self._record_loss(worker, lost, one, phase)
            raise MustPrepareAgain(*dict.fromkeys((worker, moved or worker))) from None

    def fail(self, entry: Entry, row: Row) -> None:
        """Replace a ready entry by a failed row, so that the entry is no longer timed."""
        self.rows[entry] = [{**self.ready.pop(entry), **row}]

    def _pending(self, worker: str) -> list[Assignment]:
        """Return the cases of a worker that have no row for at least one phase."""
        phases_of = self._benchmark.phases_of
        return [
            one
            for one, at in self._worker_of.items()
            if at == worker and any((one, name) not in self.rows for name in phases_of(one.case))
        ]

    def _arguments(self, worker: str) -> tuple:
        """Return the arguments of the requests `prepare` and `observe` to a worker.

        Phases that have rows, and phases that the command did not select, are skipped.
        """
        ours = [one for one, at in self._worker_of.items() if at == worker]
        skipped = {(one.case, phase) for one, phase in self.rows if one in ours}
        skipped |= {(one.case, phase) for one in ours for phase in self._left_out}
        made_of = self._benchmark.entry, self._benchmark.stem, self._benchmark.external
        return *made_of, [one.case for one in ours], skipped, self._seed

    def _find(self, worker: str, case: Case) -> Assignment:
        return next(one for one, at in self._worker_of.items() if (at, one.case) == (worker, case))

    def _entry_of(self, worker: str, lost: WorkerLost) -> tuple[Assignment, str | None] | None:
        """Return the case and phase that a lost worker was running; None if it named no case."""
        return None if lost.case is None else (self._find(worker, lost.case), lost.phase)

    def _record_loss(
        self, worker: str, lost: WorkerLost, default: Assignment, phase: str | None = None
    ) -> str | None:
        """Record rows for a lost worker, or move the case that it was running to a new worker.

        Returns the name of the worker that is to run the case; None if rows were recorded.
        `default` and `phase` are the case and phase to assume if the worker named none. A lost twin
        is left out. So are all twins if memory is short, since they may have taken it.
        """
        one, phase = self._entry_of(worker, lost) or (default, phase)
        if one in self.twins.values():
            self.drop_twin(one)
            return None
        if lacks_memory(lost.row) and self.twins:
            for twin in list(self.twins.values()):
                self.drop_twin(twin)
            return worker
        row = self._losses.row(one, phase, lost, one.case.name)
        if row is None:
            self._worker_of[one] = self._workers.isolate(one.worker, one.case)
            return self._worker_of[one]
        if row["status"] == "timeout":
            self._history.timeouts[one.worker, one.case.implementation] += 1
            self._skip_later_phases(one, phase, row)
        for name in self._benchmark.phases_of(one.case) if phase is None else [phase]:
            if phase is not None or (one, name) not in self.rows:
                self.rows[one, name] = [row]
            self.ready.pop((one, name), None)
        return None

    def _skip_later_phases(self, one: Assignment, phase: str | None, row: Row) -> None:
        """Record `timeout` for the phases after one that hung: they would hang as well."""
        names = list(self._benchmark.phases_of(one.case))
        for name in names[names.index(phase) + 1 :] if phase in names else ():
            reason = f"{row['reason']} in its {phase}"
            self.rows.setdefault((one, name), [{**row, "reason": reason}])
            self.ready.pop((one, name), None)
