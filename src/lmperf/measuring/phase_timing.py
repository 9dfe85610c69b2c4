"""Times a phase of the cases of a group that are ready, and returns its columns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lmperf.benchmark import Case, Timed, Workload
from lmperf.measuring import rounds
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.checks import Ready
from lmperf.measuring.clock import Clock, now
from lmperf.measuring.device_time import CALLS, device_time
from lmperf.measuring.failures import Failed, Row
from lmperf.measuring.sensors import MOST_LOAD

_LONG_MS = 100.0  # a call that takes longer is profiled once


class PhaseTiming:
    """The timing of a group's cases.

    Args:
        ready: the prepared cases; one that fails loses the columns of its phase.
        lose: called with a case, a phase, and the columns of its failure.
        restore: called with a case whose calls may have changed the weights of the group.
    """

    def __init__(
        self,
        steps: CaseSteps,
        clock: Clock,
        ready: Mapping[Case, Ready],
        lose: Callable[[Case, str, Row], None],
        restore: Callable[[Case], None],
    ):
        self._steps, self._clock, self._ready = steps, clock, ready
        self._lose, self._restore = lose, restore
        self._benchmark: Timed = steps.benchmark
        self._device, self._team = steps.device, steps.team
        self._is_kernel = self._benchmark.clock == "kernel"
        self._slices: dict[tuple[Case, str], int] = {}
        self._call_ms: dict[tuple[Case, str], float] = {}

    def rows(self, phase: str) -> dict[Case, Row]:
        """Time a phase of all ready cases; return the rows of those that have not failed."""
        cases = [case for case in self._ready if self._is_ready(case, phase)]
        if not cases:
            return {}
        back_to_back = rounds.is_back_to_back(self._benchmark, phase)
        timed = self._stretches(cases, phase) if back_to_back else self._in_turn(cases, phase)
        rows = {}
        for case, times in timed.items():
            try:
                finished = self._finished(case, phase, times)
            except Failed as failed:
                self._lose(case, phase, failed.row)
            else:
                rows[case] = {**self._ready[case].columns[phase], **times, **finished}
        return rows

    def _is_ready(self, case: Case, phase: str) -> bool:
        return phase in self._ready[case].columns

    def _in_turn(self, cases: Sequence[Case], phase: str) -> dict[Case, Row]:
        """Time a phase of cases in rounds; on a CPU once more if others used the processors."""

        def rounds_of_all() -> dict[Case, rounds.Times]:
            going = [case for case in cases if self._is_ready(case, phase)]
            return rounds.in_turn(
                going, partial(self.slice, phase), self._pace(), self._team.seconds
            )

        load, timed = self._steps.quieter(rounds_of_all)
        # Rows share an id, since only times taken in turn may be paired.
        more = {"other_load": load, "together": uuid.uuid4().hex[:12]}
        for case in timed:
            self._restore(case)
        return {
            case: {**times.columns, **more}
            for case, times in timed.items()
            if self._is_ready(case, phase)
        }

    def _stretches(self, cases: Sequence[Case], phase: str) -> dict[Case, Row]:
        """Time the train steps of cases back to back, in two visits in opposite order."""
        visits: dict[Case, list[tuple[float, list[float]]]] = {case: [] for case in cases}
        run, pace = partial(self.slice, phase), self._pace()
        once = self._benchmark.steps is not None
        for case in cases if once else (*cases, *reversed(cases)):
            if self._is_ready(case, phase):
                visit = partial(rounds.visit, case, run, pace)
                visits[case].append(self._steps.quieter(visit))
                self._restore(case)
        return {
            case: rounds.stretches([times for _, times in pairs]).columns
            | {"other_load": max(load for load, _ in pairs)}
            for case, pairs in visits.items()
            if self._is_ready(case, phase)
        }

    def _pace(self) -> rounds.Pace:
        declared = self._benchmark
        return rounds.pace_of(declared.clock, self._device, declared.steps, share=declared.share)

    def slice(self, phase: str, case: Case, calls: int) -> tuple[list[float], float] | None:
        """Time calls; return ms of each, and of all with their overhead; None if the case fails."""
        number = self._slices[case, phase] = self._slices.get((case, phase), 0) + 1
        lasts_s = calls * self._call_ms.get((case, phase), 0.0) / 1e3
        run = partial(self._timed, case, phase, calls, number in rounds.LOOKS)
        try:
            times, all_ms = self._steps.run("timing", case, phase, run, lasts_s)
        except Failed as failed:
            self._lose(case, phase, failed.row)
            return None
        self._call_ms[case, phase] = all_ms / calls
        return times, all_ms

    def _timed(
        self, case: Case, phase: str, calls: int, is_look: bool
    ) -> tuple[list[float], float]:
        """Time calls of a ready case; return ms of each, and of all with their overhead.

        is_look: whether to compare results with the reference, if the case is not the project's.
        """
        ready, began, times = self._ready[case], now(), []
        run, parts = self._clock.kernels if self._is_kernel else self._clock.calls, [calls]
        if rounds.is_back_to_back(self._benchmark, phase):
            run, is_look = self._clock.stretch, True
        elif ready.guard and is_look:
            parts = ready.guard.parts(calls)
        for part in parts:
            part_times, result = run(ready.work, phase, part)
            times += part_times
            (all_ms,) = self._team.longest([(now() - began) / 1e6])
            if ready.guard:
                ready.guard.timed(ready.work, phase, result, is_look)
            del result
        return times, all_ms

    def _finished(self, case: Case, phase: str, times: Row) -> Row:
        """Return further columns of a phase, after its timing.

        Raises:
            Failed: a clock is wrong, or the device works longer than the times tell.
        """
        ready = self._ready[case]
        columns = achieved({**ready.columns[phase], **times})
        parts = self._clock.parts.get(id(ready.work.phases[phase]), {})
        columns |= {f"{part}_ms": ms for part, ms in parts.items()}
        if ready.guard:  # what became wrong after the last look
            self._steps.run("timing", case, phase, partial(self._timed, case, phase, 3, True))
        if id(ready.work.phases[phase]) in self._clock.late:
            columns["bound"] = "host"
        profiled = partial(self._profiled, ready, phase, times["median_ms"])
        columns |= self._steps.run("profiling", case, phase, profiled)
        # A rank that waits for a late one looks busy.
        waits = columns.get("bound") == "host" or "communication_ms" in columns
        disturbed = self._device != "cuda" or waits
        loaded = ["loaded"] if disturbed and times["other_load"] > MOST_LOAD else []
        return {
            **columns,
            "marks": ";".join([*(ready.guard.marks if ready.guard else ()), *loaded]),
        }

    def _profiled(self, ready: Ready, phase: str, call_ms: float) -> Row:
        columns: Row = {}
        if self._is_kernel:
            saved = 2**20 * ready.columns[phase].get("saved_mib", 0.0)
            columns |= self._clock.host(ready.work, phase, call_ms, saved)
        if self._device == "cuda" and (ready.guard or not self._is_kernel):
            # A long kernel consists of many short ones, whose records take seconds to read.
            calls = 1 if self._is_kernel and call_ms > _LONG_MS else CALLS
            measured = device_time(partial(self._prepared_call, ready.work, phase), calls)
            if ready.guard:
                clocks = self._clock.ratios.get(id(ready.work.phases[phase]), (1.0, 1.0))
                ready.guard.finished(clocks, measured.device_ms, call_ms)
            columns |= {} if self._is_kernel else measured.columns(call_ms)
        return columns

    def _prepared_call(self, work: Workload, name: str) -> Callable[[], object]:
        phase, state = self._clock.fresh(work, name)
        return partial(phase.run, state)


def achieved(row: Row) -> Row:
    """Return the columns TFLOP/s and GB/s of a row, from its median time."""
    seconds, columns = row["median_ms"] / 1e3, {}
    if row.get("flops"):
        columns["tflops"] = row["flops"] / seconds / 1e12
    if row.get("bytes"):
        columns["bandwidth_gbps"] = row["bytes"] / seconds / 1e9
    return columns
