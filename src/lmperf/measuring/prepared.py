"""The cases of a group as one worker holds them: prepared, gated, and timed on request."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from lmperf.benchmark import Case, Timed, Unsupported, Workload, WrongResult
from lmperf.measuring import guards
from lmperf.measuring.clock import clock_for, now, synchronizer
from lmperf.measuring.faults import failure_row, guarded
from lmperf.measuring.footprint import phase_memory

Say = Callable[..., None]
Failures = Mapping[tuple[Case, str], dict[str, Any]]


class Prepared:
    """Workloads of some cases of a group, by case.

    Args:
        benchmark: what they are cases of.
        cases: those of this worker.
        failures: what earlier workers died of; these phases are not tried again.
        device: cuda, mps or cpu.
        seed: of the inputs.
        say: tells the supervisor of a step, before it is taken, and of rows.
    """

    def __init__(
        self,
        benchmark: Timed,
        cases: Sequence[Case],
        failures: Failures,
        device: str,
        seed: int,
        say: Say,
    ):
        self._benchmark, self._cases, self._failures = benchmark, cases, failures
        self._device, self._seed, self._say = device, seed, say
        self._clock = clock_for(benchmark.clock, device)
        self._synchronize = synchronizer(device)
        self._workloads: dict[Case, Workload] = {}
        self._saved_bytes: dict[tuple[Case, str], float] = {}

    def prepare(self) -> None:
        """Prepare and gate every case; what cannot be timed is said as a row, the rest as ready."""
        shared: dict[str, Any] = {}
        for case in self._cases:
            phases = [name for name in self._benchmark.phases if (case, name) not in self._failures]
            if phases:
                self._admit(case, phases, shared)

    def _admit(self, case: Case, phases: list[str], shared: dict[str, Any]) -> None:
        try:
            self._prepare(case, phases, shared)
        except (Unsupported, WrongResult) as reason:
            for phase in phases:
                self._say("row", case, phase, failure_row(reason))

    def _prepare(self, case: Case, phases: list[str], shared: dict[str, Any]) -> None:
        """Phases that the case turns out not to have get their row here, and leave `phases`."""
        self._say("step", case, None, "preparing")
        workload = guarded(
            case,
            None,
            lambda: self._benchmark.prepare(case, self._device, self._seed, shared),
        )
        for phase in [phase for phase in phases if phase not in workload.phases]:
            reason = Unsupported(f"{case.implementation} has no such phase of its own")
            self._say("row", case, phase, failure_row(reason))
            phases.remove(phase)
        if not phases:
            return
        with in_context(workload):
            seconds = sum([self._first_call(case, phase, workload) for phase in phases])
            gate = self._gate(case, phases, workload)
            own = case.implementation in self._benchmark.own_implementations
            compiled = {"compile_s": seconds} if workload.compiles or own else {}
            for phase in phases:
                columns = {**workload.columns, **compiled, **gate}
                if columns.get("status", "ok") == "ok":
                    columns |= self._memory(case, phase, workload)
                if columns.get("status", "ok") != "ok":
                    self._say("row", case, phase, columns)
                else:
                    timed = workload.phases[phase]
                    work = {"flops": timed.flops, "bytes": timed.bytes}
                    self._say("ready", case, phase, {**work, **columns})
        self._workloads[case] = workload

    def _first_call(self, case: Case, phase: str, workload: Workload) -> float:
        self._say("step", case, phase, "first call")
        start = perf_counter()

        def call() -> None:
            timed = workload.phases[phase]
            with guards.settings_kept(set()):
                timed.run(timed.before())
                self._synchronize()

        guarded(case, phase, call)
        return perf_counter() - start

    def _gate(self, case: Case, phases: list[str], workload: Workload) -> dict[str, Any]:
        if workload.gate is None:
            return {}
        self._say("step", case, None, "checking")

        def check() -> dict[str, Any]:
            with guards.settings_kept(set()):
                return workload.gate(phases).columns

        return guarded(case, None, check)

    def _memory(self, case: Case, phase: str, workload: Workload) -> dict[str, Any]:
        self._say("step", case, phase, "memory")

        def observe() -> dict[str, Any]:
            with guards.settings_kept(set()):
                self._clock.freshen(workload)
                return phase_memory(workload, workload.phases[phase], self._device)

        found = guarded(case, phase, observe)
        self._saved_bytes[case, phase] = found.get("saved_mib", 0.0) * 2**20
        try:
            guards.refuse_growth(found.pop("live_bytes", []))
        except WrongResult as reason:
            return {**found, **failure_row(reason)}
        return found

    def warm_up(self, case: Case, phase: str, least_ms: float) -> tuple[float, float]:
        """ms of a call, and ms a call with all that is done around it."""
        workload = self._workloads[case]
        with in_context(workload):
            return guarded(case, phase, lambda: self._clock.warm_up(workload, phase, least_ms))

    def slice(self, case: Case, phase: str, repetitions: int, checked: bool) -> dict[str, Any]:
        """Times of calls; with `checked` the slice ends at a random call, whose result is checked.

        Raises:
            WrongResult: the result of that call is not what the reference says.
        """
        began = now()
        workload = self._workloads[case]
        checked = checked and workload.check is not None
        chosen = random.SystemRandom().randrange(repetitions // 2, repetitions) if checked else None
        with in_context(workload):
            found = guarded(
                case, phase, lambda: self._clock.slice(workload, phase, repetitions, chosen)
            )
            if checked:
                guarded(case, phase, lambda: self._check(workload, phase, found.snapshot))
        return {
            "times": found.times,
            "host": found.host,
            "host_bound": found.host_bound,
            "left": found.left,
            "between": (began, now()),
        }

    def _check(self, workload: Workload, phase: str, snapshot: Any) -> None:
        with guards.settings_kept(set()):
            gate = workload.check(phase, snapshot)
        if gate.passed:
            return
        error, bound = gate.errors[gate.worst], gate.bounds[gate.worst]
        raise WrongResult(
            f"a timed call gave another {gate.worst_in_words} than the reference for its inputs:"
            f" error {error:.2g}, bound {bound:.2g}"
        )

    def host_and_loop(self, case: Case, phase: str, call_ms: float) -> dict[str, float]:
        """Columns `host_ms` and `eager_ms` of a kernel; empty on a CPU and for steps."""
        if self._benchmark.clock != "kernel":
            return {}
        workload, saved = self._workloads[case], self._saved_bytes[case, phase]
        with in_context(workload), guards.settings_kept(set()):
            host_ms, eager_ms = guarded(
                case, phase, lambda: self._clock.host_and_loop(workload, phase, call_ms, saved)
            )
        return {} if host_ms is None else {"host_ms": host_ms, "eager_ms": eager_ms}


def clear(device: str) -> None:
    """Leave nothing of a group behind: graphs, garbage, cached memory."""
    import torch

    # A group starts without the graphs of the one before: past eight shapes dynamo would fall back.
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def in_context(workload: Workload):
    """The context in which a workload's calls run: its precision flags, for example."""
    return workload.context() if workload.context else contextlib.nullcontext()
