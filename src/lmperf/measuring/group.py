"""Measures a group: cases that are timed in turn (interleaved), so that their times compare.

A case is one implementation in one cell (its shape, dtype and other axes). The cases of a group are
prepared in worker processes, timed, and turned into rows.

If the machine was disturbed (by other programs, a device slower than usual, or a slow host), a
phase is timed again. If it was disturbed again, its rows are marked.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmperf.benchmark import Benchmark
from lmperf.measuring.assigned import AssignedCases, Entry, MustPrepareAgain, Row, Rows
from lmperf.measuring.clock_settings import ANSWER_MS, OTHER_CLOCK, OTHER_CLOCK_SLICES
from lmperf.measuring.history import RunHistory
from lmperf.measuring.process import WorkerLost
from lmperf.measuring.readings import Reading
from lmperf.measuring.rounds import MOST_TAKES, SliceResult, Timings, pace_of, time_in_turn
from lmperf.measuring.state import State
from lmperf.measuring.sustained import (
    Stretch,
    is_long_enough,
    lead_steps,
    stretch_fault,
    stretch_steps,
)
from lmperf.measuring.twins import Assignment, take_noise
from lmperf.measuring.workers import Workers

# Times that a stretch of steps is taken if it is too short or the clocks disagree on its duration.
_MOST_STRETCHES = 3


class Group:
    """Measures a group of cases in turn, and returns their rows.

    Implements `rounds.Timer`, where an entry is an (assignment, phase) pair.

    Args:
        workers: the worker processes.
        history: timeouts, disturbed phases and references in the earlier groups of the run.
        benchmark: the benchmark of the cases.
        assignments: the cases, in the order of their rows.
        seed: seed of the inputs.
        twins: case -> the same case in a second process, for an A/A test; twins have no rows.
        sustained: the cases whose steps are also timed back to back where the benchmark wants it.
    """

    def __init__(
        self,
        workers: Workers,
        history: RunHistory,
        benchmark: Benchmark,
        assignments: Sequence[Assignment],
        seed: int,
        twins: Mapping[Assignment, Assignment],
        sustained: Collection[Assignment],
    ):
        self._workers, self._history, self._benchmark = workers, history, benchmark
        self._assignments, self._sustained = list(assignments), sustained
        self._cases = AssignedCases(workers, history, benchmark, assignments, twins, seed)
        self._readings: list[Reading] = []
        self._can_read = True
        # Entry -> number of slices in a row whose answer came late by the worker's clock.
        self._late: Counter[Entry] = Counter()

    def observe(self) -> Rows:
        """Return the rows of an observed benchmark, which records e.g. bytes and is not timed."""
        for worker in self._cases.workers:
            self._cases.complete(worker, "observe")
        return self._in_order()

    def time(self) -> Rows:
        """Time all phases of a timed benchmark, and return the rows."""
        self._workers.start(self._cases.workers)
        for worker in self._cases.workers:
            self._cases.complete(worker, "prepare")
        self._cases.add_twins()
        for phase in self._benchmark.phases:
            self._time_phase(phase)
        for worker in {*self._cases.workers} & {*self._workers.names}:
            with contextlib.suppress(WorkerLost):
                self._cases.ask(worker, "clear")
        return self._in_order()

    def warm_up(self, entry: Entry, least_ms: float) -> tuple[float, float] | None:
        """See `rounds.Timer`."""
        self._workers.watch.begin()
        return self._cases.ask_timing(entry, "warm_up", least_ms)

    def slice(self, entry: Entry, repetitions: int, checked: bool) -> SliceResult | None:
        """See `rounds.Timer`. A slice fails if the worker's clock disagrees with this process's.

        An answer may come late by chance, so the next slice has twice the calls: a clock that runs
        slow is late by twice as much. Several late slices in a row fail. Beside other load an
        answer is late for long, and says nothing: the row is marked.
        """
        calls = repetitions * 2 ** self._late[entry]
        found, here, state = self._watched(entry, "slice", calls, checked)
        if found is None:
            return None
        fault = clock_fault(here, found.pop("interval_ns"), found["times"])
        self._late[entry] = self._late[entry] + 1 if fault and not state.loaded else 0
        if fault and (fault.certain or self._late[entry] >= OTHER_CLOCK_SLICES):
            self._cases.fail(entry, {"status": "failed_check", "reason": fault.reason})
            return None
        return SliceResult(state=state, **found)

    def between(self) -> None:
        """See `rounds.Timer`: read the host's references."""
        if self._workers.device != "cuda" or self._benchmark.clock == "step":
            self._read("host_reference")

    def _in_order(self) -> Rows:
        entries = [(one, phase) for phase in self._benchmark.phases for one in self._assignments]
        # A worker with an older version of the code may lack a phase.
        return {entry: self._cases.rows[entry] for entry in entries if entry in self._cases.rows}

    def _time_phase(self, phase: str) -> None:
        """Time one phase of all cases; again if the machine was disturbed or a worker is lost."""
        repeats = 0
        while True:
            for worker in self._cases.replaced_workers():
                self._cases.complete(worker, "prepare")
            self._cases.skip_timed_out()
            may_repeat = repeats + 1 < MOST_TAKES and self._history.may_repeat
            try:
                timings = self._rounds(phase)
                disturbed = self._is_disturbed(timings)
                if disturbed and may_repeat:
                    repeats += 1
                    continue
                self._complete_timings(timings)
                break
            except MustPrepareAgain as lost:
                for worker in lost.workers:
                    self._cases.complete(worker, "prepare")
        if timings:
            self._history.timed(disturbed)
        self._mark(timings)
        self._write(timings)

    def _rounds(self, phase: str) -> dict[Entry, Timings]:
        """Time the entries of a phase in rounds, with readings of the references around them."""
        ready = self._cases.ready_for(phase)
        if not ready:
            return {}
        watch = self._workers.watch
        watch.begin()
        self._readings.clear()
        self._read("reference")
        watch.wait()
        pace = pace_of(self._benchmark.clock, self._workers.device, self._benchmark.patient)
        twins = {(twin, phase) for twin in self._cases.twins.values()}
        timings = time_in_turn(ready, self, pace, twins=twins)
        self._read("reference")
        return timings

    def _complete_timings(self, timings: dict[Entry, Timings]) -> None:
        """Add host times, and steps back to back, to timings; remove those of entries that fail.

        Steps back to back take most of the time of a phase, so they are taken once. If the machine
        is disturbed meanwhile, the rows are marked.
        """
        for entry in list(timings):
            if not self._complete(entry, timings[entry]):
                del timings[entry]
        if any(timing.stretch for timing in timings.values()):
            self._read("reference")

    def _complete(self, entry: Entry, timing: Timings) -> bool:
        """Add host times, and steps back to back, to the timings of an entry; False if it fails."""
        one, phase = entry
        host = self._cases.ask_timing(entry, "host_and_loop", timing.median_ms)
        if host is None:
            return False
        timing.others |= host
        if one in self._sustained and self._benchmark.sustains(one.case, phase):
            timing.stretch = self._stretch(entry, timing.median_ms)
            return timing.stretch is not None
        return True

    def _stretch(self, entry: Entry, step_ms: float) -> Stretch | None:
        """Time steps back to back after a lead-in, and check the last one; None if it fails."""
        steps = lead_steps(step_ms)
        lead = self._cases.ask_timing(entry, "sustain", steps, lasts_s=steps * step_ms / 1e3)
        if lead is None:
            return None
        found, reason = lead, None
        for _ in range(_MOST_STRETCHES):
            step_ms = sum(found["times"]) / len(found["times"])
            steps = stretch_steps(step_ms)
            found, here, state = self._watched(
                entry, "sustain", steps, lasts_s=steps * step_ms / 1e3
            )
            if found is None or self._cases.ask_timing(entry, "check_last") is None:
                return None
            reason = stretch_fault(found["times"], (here[1] - here[0]) / 1e6)
            if reason is None and is_long_enough(found["times"]):
                break
        if reason is None:
            return Stretch(found["calls"], state)
        self._cases.fail(entry, {"status": "failed_check", "reason": reason})
        return None

    def _watched(
        self, entry: Entry, *request: Any, lasts_s: float = 0.0
    ) -> tuple[Any, tuple[int, int], State]:
        """Send a request about an entry; return the answer, and time and state meanwhile.

        The time is that of the request and that of the answer, in ns by this process's clock.
        """
        watch = self._workers.watch
        began = time.perf_counter_ns()
        watch.begin()
        found = self._cases.ask_timing(entry, *request, on_wait=watch.sample, lasts_s=lasts_s)
        ended = time.perf_counter_ns()
        return found, (began, ended), watch.end()

    def _read(self, request: str) -> None:
        """Take a reading of the references, and add it to those of the phase.

        After one that failed, the group has no further readings.

        Raises:
            MustPrepareAgain: the worker that takes it was lost.
        """
        if not self._can_read:
            return
        found = self._history.references.read(lambda: self._workers.reading(request))
        self._can_read = found is not None
        if found is not None:
            self._readings.append(found)
        if replaced := self._cases.replaced_workers():
            raise MustPrepareAgain(*replaced)

    def _worst_reading(self) -> Reading:
        worst = Reading()
        for reading in self._readings:
            worst = worst.merged(reading, max)
        return worst

    def _disturbances(self, timing: Timings, worst: Reading) -> list[str]:
        """Return the marks for what disturbed the machine, from the phase's worst reading."""
        references = self._history.references
        found = {
            "loaded": timing.is_loaded,
            "drift": references.drifted(worst),
            "host": references.slow_host(worst) and self._depends_on_host(timing),
        }
        return [name for name, holds in found.items() if holds]

    def _is_disturbed(self, timings: Mapping[Entry, Timings]) -> bool:
        worst = self._worst_reading()
        return any(self._disturbances(timing, worst) for timing in timings.values())

    def _mark(self, timings: Mapping[Entry, Timings]) -> None:
        """Add readings of the references, and marks, to the timings of a phase."""
        references, worst = self._history.references, self._worst_reading()
        columns = {
            "reference": references.device_ratio(worst),
            "host_reference": references.host_ratio(worst),
            "launch_us": worst.launch_us,
            "python_us": worst.python_us,
        }
        for (one, _), timing in timings.items():
            timing.others |= columns
            timing.marks |= dict.fromkeys(self._disturbances(timing, worst))
            sustained = timing.stretch and self._benchmark.clock == "step"
            if sustained or self._benchmark.runs_back_to_back(one.case):
                timing.marks.pop("capped", None)  # the clock and the power of the cap are known

    def _depends_on_host(self, timing: Timings) -> bool:
        """Return whether a slow host makes these times longer; times of kernels are device time."""
        if self._workers.device != "cuda":
            return True
        return self._benchmark.clock == "step" and timing.is_host_bound

    def _write(self, timings: Mapping[Entry, Timings]) -> None:
        """Write the rows of a phase; twins give the noise of their cases.

        The rows share an id in the column `together`, since only times taken in turn may be paired.
        """
        together, found = uuid.uuid4().hex[:12], {}
        for entry, timing in timings.items():
            columns, known = timing.columns(), self._cases.ready[entry]
            marks = ";".join(filter(None, (columns["marks"], known.get("marks"))))
            row = {"status": "ok", **columns, "together": together, **known, "marks": marks}
            found[entry] = row | achieved(row)
        for one, twin in self._cases.twins.items():
            for phase in self._benchmark.phases:
                take_noise(found.get((one, phase), {}), found.pop((twin, phase), {}))
        self._cases.rows |= {entry: [row] for entry, row in found.items()}


@dataclass(frozen=True)
class ClockFault:
    """Why the times of a slice may not be true.

    Attributes:
        certain: whether they cannot be true; if not, the answer may have come late by chance.
    """

    reason: str
    certain: bool


def clock_fault(
    here: tuple[int, int], in_worker: tuple[int, int], times: Sequence[float]
) -> ClockFault | None:
    """Return why the times of a slice may not be true; None if they agree with the clock here.

    All processes of a machine share one monotonic clock. So the slice must lie within the time from
    the request to the answer, end just before the answer, and the calls must not add up to more
    than the slice.

    Args:
        here: times in ns when this process sent the request and received the answer.
        in_worker: times in ns when the slice began and ended by the worker's clock.
        times: ms of each call in the slice.
    """
    here_ms, worker_ms = ((end - begin) / 1e6 for begin, end in (here, in_worker))
    late_ms = (here[1] - in_worker[1]) / 1e6
    within = here[0] <= in_worker[0] <= in_worker[1] <= here[1] and sum(times) <= worker_ms
    if within and late_ms <= (1 - OTHER_CLOCK) * here_ms + ANSWER_MS:
        return None
    reason = (
        f"its clock is wrong: it reports {worker_ms:.3g} ms, of which {sum(times):.3g} ms in calls,"
        f" for a slice that took {here_ms:.3g} ms by the supervisor's clock"
    )
    return ClockFault(reason, certain=not within)


def achieved(row: Row) -> Row:
    """Return the columns TFLOP/s and GB/s of a row, computed from its median time."""
    seconds = row["median_ms"] / 1e3
    columns: Row = {}
    if row.get("flops"):
        columns["tflops"] = row["flops"] / seconds / 1e12
    if row.get("bytes"):
        columns["bandwidth_gbps"] = row["bytes"] / seconds / 1e9
    return columns
