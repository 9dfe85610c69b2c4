"""Calls each phase of a prepared case, weighs it, and gates the case once, before it is timed."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from lmperf.benchmark import Case, Unsupported, Workload, WrongResult
from lmperf.errors import message_of, user_line
from lmperf.gate import UNCHECKED
from lmperf.measuring import interpreter
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.clock import Clock, now
from lmperf.measuring.failures import Failed, Row, failure_row
from lmperf.measuring.guards import Guard
from lmperf.measuring.out_of_memory import out_of_memory
from lmperf.measuring.peak_memory import phase_memory


@dataclass
class Ready:
    """A case that is prepared.

    Attributes:
        guard: of an implementation that is not the project's own.
        columns: phase -> columns known before it is timed.
    """

    work: Workload
    guard: Guard | None
    columns: dict[str, Row] = field(default_factory=dict)


class Checks:
    """The checks of a group's cases."""

    def __init__(self, steps: CaseSteps, clock: Clock):
        self._steps, self._clock = steps, clock
        self._device, self._team = steps.device, steps.team

    def ready(self, case: Case, work: Workload, phases: Sequence[str]) -> Ready:
        """Check a case, of which `phases` are to be timed.

        Raises:
            Failed: a step failed, or the gate.
        """
        run, guard = self._steps.run, self._guard(case)
        ready, launched = Ready(work, guard), interpreter.launches()
        if work.expect is not None:
            run("checking", case, None, partial(self._part_of_gate, work.expect))
        first_s = 0.0
        for phase in phases:
            call = partial(self._first_call, work, phase, guard)
            first_s += run("first call", case, phase, call)
        seconds = {"compile_s": first_s} if work.compiles or guard else {}
        for phase in phases:
            # Also the first call that has all state of an optimizer.
            sizes = run("memory", case, phase, partial(self._memory, work, phase))
            if sizes.get("peak_mib", work.least_mib) < work.least_mib:
                words = f"{sizes.pop('peak_mib'):.4g} MiB of at least {work.least_mib:.4g}"
                note = f"the peak of {case.name} is left out: only {words} were seen"
                self._steps.tell(note=note)
            counts = work.phases[phase]
            counted = {
                "flops": counts.flops,
                "full_flops": counts.full_flops,
                "bytes": counts.bytes,
            }
            ready.columns[phase] = {**counted, **seconds, **sizes}
        gated: Row = {}
        if phases and work.gate is not None:
            gated = run("checking", case, None, partial(self._gate, work, phases))
            if gated["status"] != "ok":
                raise Failed({**seconds, **work.columns, **gated})
        try:
            interpreter.require_none(launched, self._device, interpreter.CHECKED)
        except Unsupported as error:
            raise Failed(gated | failure_row(error)) from None
        for phase in phases if guard else ():
            run("looking for cheats", case, phase, partial(guard.prepared, work, phase))
        columns = self._team.largest(work.columns)
        ready.columns = {name: columns | row | gated for name, row in ready.columns.items()}
        return ready

    def _guard(self, case: Case) -> Guard | None:
        if not self._steps.is_external(case):
            return None
        # A CUDA graph writes every result to the same memory, by design.
        is_kernel = self._steps.benchmark.clock == "kernel"
        keeps_results = is_kernel and not case.axes.get("cuda_graph")
        ours = partial(self._steps.ours, case)
        return Guard(self._device, self._team, keeps_results, ours)

    def _first_call(self, work: Workload, phase: str, guard: Guard | None) -> float:
        """Call a phase; an error in a backward pass is noted with the forward call behind it.

        Raises:
            WrongResult: autograd rejects the result, and no line of the user's is behind that.
        """
        try:
            return self._call(work, phase)
        except RuntimeError as error:
            if guard is None or self._team.rank or out_of_memory(error) or user_line(error):
                raise
            with warnings.catch_warnings(record=True) as caught, suppress(Exception):
                warnings.simplefilter("always")
                with torch.autograd.set_detect_anomaly(True, check_nan=False):
                    self._call(work, phase)
            for warning in caught:
                error.add_note(str(warning.message))
            *_, last = traceback.extract_tb(error.__traceback__)
            # Errors of a device and of memory have types of their own.
            is_autograds = type(error) is RuntimeError and "/torch/autograd/" in last.filename
            if is_autograds and not user_line(error):
                words = f"its result cannot be differentiated: {message_of(error)}"
                raise WrongResult(words) from error
            raise

    def _call(self, work: Workload, phase: str) -> float:
        """Call a phase; return how many seconds it takes."""
        began = now()
        work.phases[phase].run(work.phases[phase].before())
        self._clock.synchronize()
        return (now() - began) / 1e9

    def _gate(self, work: Workload, phases: Sequence[str]) -> Row:
        gate = self._part_of_gate(partial(work.gate, [*phases]))
        return self._team.worst(dict(gate.columns))

    def _part_of_gate(self, check: Callable[[], Any]) -> Any:
        """Run a part of the gate and return its result.

        Raises:
            WrongResult: it needs more memory than the device has.
        """
        if self._device == "cuda":
            # A reference that took parts of large cached blocks would keep them from being freed.
            torch.cuda.empty_cache()
        try:
            return check()
        except Exception as error:
            if out_of_memory(error) is None:
                raise
            raise WrongResult(UNCHECKED) from None

    def _memory(self, work: Workload, name: str) -> Row:
        """Return the columns of the memory of a call; {} where nothing tells it."""
        prepare = partial(self._clock.fresh, work, name)
        return self._team.largest(phase_memory(work, prepare, self._device))
