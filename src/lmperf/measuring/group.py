"""The cases of a group, prepared, checked and timed together; runs in a worker or a rank."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from lmperf.benchmark import Case, Observed, Unsupported, Workload
from lmperf.measuring import interpreter, vectors
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.checks import Checks, Ready
from lmperf.measuring.clock import Clock
from lmperf.measuring.failures import Failed, Row, failure_row, lacks_memory
from lmperf.measuring.phase_timing import PhaseTiming
from lmperf.measuring.sensors import MOST_LOAD
from lmperf.measuring.weights import Weights


class Group:
    """The cases of a group.

    Args:
        steps: runs the steps of the cases.
        done: (case, phase) pairs that have rows.
        alone: cases that ran out of memory beside the others.
        seed: of the inputs.
    """

    def __init__(
        self,
        steps: CaseSteps,
        cases: Sequence[Case],
        done: Collection[tuple[Case, str]],
        alone: Collection[Case],
        seed: int,
    ):
        self._steps, self._cases, self._alone, self._seed = steps, cases, alone, seed
        self._benchmark, self._device, self._rank = steps.benchmark, steps.device, steps.team.rank
        self._done, self._weights = {*done}, Weights()
        self._shared: dict[str, dict[str, Any]] = {}
        self._ready: dict[Case, Ready] = {}
        self._full: dict[Case, None] = {}  # those that lack memory beside the others
        self._beside = 1  # how many cases are measured together now
        if not isinstance(self._benchmark, Observed):
            self._clock = clock = Clock(self._device, steps.team)
            self._checks = Checks(steps, clock)
            self._timing = PhaseTiming(steps, clock, self._ready, self._lose, self._restore)

    def check(self) -> None:
        """Check the cases without timing them: those that pass have no rows."""
        self._measure(self._cases, ())

    def run(self) -> None:
        """Measure the group; cases that lack memory beside the others, once more alone."""
        if isinstance(self._benchmark, Observed):
            for case in self._cases:
                self._observe(case)
            return
        alone = [case for case in self._cases if case in self._alone]
        phases = self._benchmark.phases
        self._measure([case for case in self._cases if case not in alone], phases)
        for case in [*alone, *self._full]:
            self._measure([case], phases)

    def _measure(self, cases: Sequence[Case], phases: Sequence[str]) -> None:
        self._beside = len(cases)
        for case in cases:
            self.prepare(case)
        # Collections during timed calls skip what earlier cases and the compiler have left.
        gc.freeze()
        for phase in phases:
            for case, row in self._timing.rows(phase).items():
                self._rows(case, phase, row)
        gc.unfreeze()
        self._ready.clear()
        self._clock.forget()
        self._steps.contexts.clear()
        self._shared, self._weights = {}, Weights()
        _reset_compiler()
        self._steps.recover()
        gc.freeze()  # again what is imported

    def _phases(self, case: Case) -> list[str]:
        chosen = [p for p in self._benchmark.phases_of(case) if p in self._benchmark.phases]
        return [phase for phase in chosen if (case, phase) not in self._done]

    def _rows(self, case: Case, phase: str, *rows: Row) -> None:
        self._done.add((case, phase))
        more: Row = {"seed": self._seed}
        may_compile = self._benchmark.implementation(case.implementation).may_compile
        if self._device == "cpu" and may_compile and (width := vectors.bits()):
            more["vector_bits"] = width
        self._steps.rows(case, phase, [{"status": "ok", **row, **more} for row in rows])

    def _observe(self, case: Case) -> None:
        for phase in self._phases(case):
            see = partial(
                self._steps.run, "observing", case, phase, partial(self._seen, case, phase)
            )
            try:
                rows = self._quietly(see) if self._benchmark.has_times else see()
            except Failed as failed:
                rows = [failed.row]
            self._rows(case, phase, *rows)
        _reset_compiler()
        self._steps.recover()

    def _quietly(self, see: Callable[[], list[Row]]) -> list[Row]:
        """Return observed rows with the load of others."""
        load, rows = self._steps.quieter(see)
        marks = {"marks": "loaded"} if self._device != "cuda" and load > MOST_LOAD else {}
        return [{**row, "other_load": load, **marks} for row in rows]

    def _seen(self, case: Case, phase: str) -> list[Row]:
        launched = interpreter.launches()
        rows = self._benchmark.seen(case, phase, self._device, self._rank, self._seed)
        if self._steps.is_external(case):
            interpreter.require_none(launched, self._device)
        return rows

    def prepare(self, case: Case) -> None:
        """Prepare and check a case; what it did to the weights of the group is undone."""
        if not (phases := self._phases(case)):
            return
        run = partial(self._steps.run, "preparing", case, None)
        try:
            work = run(partial(self._workload, case))
            self._steps.contexts[case] = work.context or nullcontext
            if len(self._cases) > 1:
                run(partial(self._weights.keep, work.resident))
            for phase in phases:
                if phase not in work.phases:
                    reason = f"{case.implementation} has no such phase"
                    self._rows(case, phase, failure_row(Unsupported(reason)))
            present = [phase for phase in phases if phase in work.phases]
            self._ready[case] = self._checks.ready(case, work, present)
        except Failed as failed:
            for phase in phases:
                self._lose(case, phase, failed.row)
        self._restore(case)

    def _workload(self, case: Case) -> Workload:
        # A model class of a user has other weights.
        name = case.implementation if self._steps.is_external(case) else ""
        shared = self._shared.setdefault(name, {})
        return self._benchmark.workload(case, self._device, self._rank, self._seed, shared)

    def _lose(self, case: Case, phase: str, row: Row) -> None:
        """Tell the row of a phase that failed, unless the case is measured again alone."""
        self._restore(case)
        columns = self.ready(case).pop(phase, {})
        if self._beside > 1 and lacks_memory(row):
            self._full[case] = None
        elif (case, phase) not in self._done:
            self._rows(case, phase, {**columns, **row})

    def _restore(self, case: Case) -> None:
        if self._weights.restore():
            self._steps.tell(note=f"weights or moments that {case.name} changed were put back")

    def ready(self, case: Case) -> dict[str, Row]:
        """Phase -> columns known before its timing, of the phases that can be timed."""
        return self._ready[case].columns if case in self._ready else {}

    def slice(self, phase: str, case: Case, calls: int) -> tuple[list[float], float] | None:
        """Time calls of a ready case, as `PhaseTiming.slice` does."""
        return self._timing.slice(phase, case, calls)


def _reset_compiler() -> None:
    """Forget compiled graphs: Dynamo gives up after eight recompilations."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
