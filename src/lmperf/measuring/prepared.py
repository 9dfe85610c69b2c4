"""Prepares, checks and times the cases of a group, in a worker process."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Any

from lmperf.benchmark import Case, Timed, Unsupported, Workload, WrongResult
from lmperf.measuring import clock, guards
from lmperf.measuring.clock import Clock, Slice, clock_for, synchronizer
from lmperf.measuring.emulated import require_instructions
from lmperf.measuring.faults import failure_row, guarded, guarded_check
from lmperf.measuring.footprint import phase_memory, requested_bytes

# A stretch has a random number of further steps, at most this many, or an eighth of those asked for
# if that is more; never more than were asked for.
_FURTHER_STEPS = 8
# A phase leaks if its memory was larger than ever before after so many slices: caches fill sooner.
_LEAKING_SLICES = 4


class Prepared:
    """Prepares and times the cases of a group that one worker runs.

    Args:
        benchmark: the benchmark of the cases.
        cases: the cases of this worker.
        skipped: (case, phase) pairs that already have rows.
        device: cuda, mps or cpu.
        seed: seed of the inputs.
        send: sends the supervisor a message: each step before it runs, and rows.
    """

    def __init__(
        self,
        benchmark: Timed,
        cases: Sequence[Case],
        skipped: Collection[tuple[Case, str]],
        device: str,
        seed: int,
        send: Callable[..., None],
    ):
        self._benchmark, self._cases, self._skipped = benchmark, cases, skipped
        self._device, self._seed, self._send = device, seed, send
        self._clock = self._new_clock()
        self._synchronize = synchronizer(device)
        self._workloads: dict[Case, Workload] = {}
        self._saved_bytes: dict[tuple[Case, str], float] = {}
        self._last: Any = None
        # (case, phase) -> bytes by which the allocated memory grew in each slice.
        self._growth: dict[tuple[Case, str], list[int]] = {}

    def _new_clock(self) -> Clock:
        return clock_for(self._benchmark.clock, self._device)

    def _workload_of(self, case: Case, shared: dict[str, Any]) -> Workload:
        require_instructions(self._benchmark, case, self._device)
        return self._benchmark.prepare(case, self._device, self._seed, shared)

    def _memory_of(self, workload: Workload, phase: str) -> dict[str, Any]:
        """Return the memory of one call of a phase; see `footprint.phase_memory`."""
        self._clock.freshen(workload)
        return phase_memory(workload, workload.phases[phase], self._device)

    def prepare(self) -> None:
        """Prepare and check every case.

        Sends `ready` for each phase that can be timed, and a row for each other phase.
        """
        shared: dict[str, Any] = {}
        for case in self._cases:
            had = self._benchmark.phases_of(case)
            phases = [name for name in had if (case, name) not in self._skipped]
            if not phases:
                continue
            try:
                self._prepare(case, phases, shared)
            except (Unsupported, WrongResult) as reason:
                for phase in phases:
                    self._send("row", case, phase, failure_row(reason))

    def _prepare(self, case: Case, phases: list[str], shared: dict[str, Any]) -> None:
        """Prepare and check one case.

        Phases that the workload lacks get the status `unsupported` and are removed from `phases`.
        """
        self._send("step", case, None, "preparing")
        workload = guarded(case, None, lambda: self._workload_of(case, shared))
        for phase in [phase for phase in phases if phase not in workload.phases]:
            reason = Unsupported(f"{case.implementation} has no such phase")
            self._send("row", case, phase, failure_row(reason))
            phases.remove(phase)
        if not phases:
            return
        with in_context(workload):
            seconds = sum([self._first_call(case, phase, workload) for phase in phases])
            if self._benchmark.clock == "step":
                self._call_again(case, phases, workload)
            gates = self._gates(case, phases, workload)
            external = case.implementation in self._benchmark.external
            compiled = {"compile_s": seconds} if workload.compiles or external else {}
            for phase in phases:
                columns = {**workload.columns, **compiled, **gates[phase]}
                if columns.get("status", "ok") == "ok":
                    columns |= self._memory(case, phase, workload)
                if columns.get("status", "ok") != "ok":
                    self._send("row", case, phase, columns)
                else:
                    timed = workload.phases[phase]
                    work = {"flops": timed.flops, "bytes": timed.bytes}
                    work["full_flops"] = timed.full_flops
                    self._send("ready", case, phase, {**work, **columns})
        self._workloads[case] = workload

    def _first_call(self, case: Case, phase: str, workload: Workload) -> float:
        """Return the seconds of the first call of a phase, which may compile."""
        self._send("step", case, phase, "first call")
        start = perf_counter()
        guarded(case, phase, lambda: self._call(workload, phase))
        return perf_counter() - start

    def _call_again(self, case: Case, phases: list[str], workload: Workload) -> None:
        """Call each phase once more, so that a case that does not fit ends before its check.

        The first train step creates the optimizer's state, so that later calls need more memory.
        """
        for phase in phases:
            self._send("step", case, phase, "memory")
            guarded(case, phase, lambda phase=phase: self._call(workload, phase))

    def _call(self, workload: Workload, phase: str) -> None:
        timed = workload.phases[phase]
        with guards.settings_restored(set()):
            timed.run(timed.before())
            self._synchronize()

    def _gates(
        self, case: Case, phases: list[str], workload: Workload
    ) -> dict[str, dict[str, Any]]:
        """Run the correctness gate of each phase; return phase -> its columns, with `status`.

        A phase that fails its gate is withheld. A wrong forward withholds every phase, since the
        others follow from it. Without a gate there are no columns.
        """
        found: dict[str, dict[str, Any]] = {}
        for phase in phases:
            first = found.get("forward", {})
            failed = first.get("status", "ok") != "ok"
            found[phase] = dict(first) if failed else self._gate(case, phase, workload)
        return found

    def _gate(self, case: Case, phase: str, workload: Workload) -> dict[str, Any]:
        if workload.gate is None:
            return {}
        self._send("step", case, phase, "checking")
        # A reference that took parts of large cached blocks would keep the blocks from being freed,
        # so that a model which fits into memory alone does not fit beside it.
        _empty_cache(self._device)

        def check() -> dict[str, Any]:
            with guards.settings_restored(set()):
                return workload.gate([phase]).columns

        try:
            return guarded_check(case, phase, check)
        except WrongResult as reason:
            return failure_row(reason)

    def _memory(self, case: Case, phase: str, workload: Workload) -> dict[str, Any]:
        self._send("step", case, phase, "memory")

        def observe() -> dict[str, Any]:
            with guards.settings_restored(set()):
                return self._memory_of(workload, phase)

        found = guarded(case, phase, observe)
        if self._reuses_output(case, phase, workload):
            found["marks"] = "reused_output"
        self._saved_bytes[case, phase] = found.get("saved_mib", 0.0) * 2**20
        try:
            guards.refuse_growth(found.pop("live_bytes", []))
        except WrongResult as reason:
            return {**found, **failure_row(reason)}
        return found

    def _reuses_output(self, case: Case, phase: str, workload: Workload) -> bool:
        """Return whether two results of a custom kernel or of a peer's lie in the same memory.

        A caller would find its first result overwritten. A CUDA graph does so by design.
        """
        external = case.implementation in self._benchmark.external
        if not external or self._benchmark.clock != "kernel" or case.axes.get("cuda_graph"):
            return False
        import torch

        timed = workload.phases[phase]

        def observe() -> bool:
            try:
                with guards.settings_restored(set()):
                    first = timed.run(timed.before())
                    return guards.shares_memory(first, timed.run(timed.before()))
            except torch.OutOfMemoryError:
                return False  # two results do not fit

        return guarded(case, phase, observe)

    def warm_up(self, case: Case, phase: str, least_ms: float) -> tuple[float, float]:
        """Return ms of one call, and ms of a call with overhead (fresh inputs, events)."""
        workload = self._workloads[case]
        with in_context(workload):
            return guarded(case, phase, lambda: self._clock.warm_up(workload, phase, least_ms))

    def slice(self, case: Case, phase: str, repetitions: int, checked: bool) -> dict[str, Any]:
        """Time a slice: a short run of calls of a phase.

        If `checked`, the slice has parts of random length, and the last call of each is checked:
        so every call may be a checked one, whatever an implementation knows of the slice's start.

        Returns the attributes of `clock.Slice` but the snapshot, and `interval_ns`: the times in ns
        when the slice began and ended, by the clock that times the calls.

        Raises:
            WrongResult: the result of a checked call differs from the reference, or the memory that
                the phase uses has grown in several slices.
        """
        began = clock.now()
        workload, found, chance = self._workloads[case], Slice(), random.SystemRandom()
        checked = checked and workload.check is not None
        with in_context(workload):
            # Memory is compared from the end of the first part: its calls may allocate what the
            # slices of another case have freed, such as the gradients of a model that both use.
            first = chance.randint(1, repetitions) if checked else 1
            found.add(self._part(case, phase, first, checked))
            before = self._requested(workload)
            while (left := repetitions - len(found.times)) > 0:
                calls = chance.randint(1, repetitions) if checked else left
                found.add(self._part(case, phase, calls, checked))
        self._refuse_growth(case, phase, before)
        return {
            "times": found.times,
            "host": found.host,
            "host_bound": found.host_bound,
            "changed_settings": found.changed_settings,
            "interval_ns": (began, clock.now()),
        }

    def _part(self, case: Case, phase: str, calls: int, checked: bool) -> Slice:
        workload = self._workloads[case]
        part = guarded(case, phase, lambda: self._clock.slice(workload, phase, calls, checked))
        if checked:
            guarded_check(case, phase, lambda: self._check(workload, phase, part.snapshot))
        return part

    def _requested(self, workload: Workload) -> int:
        """Return the bytes of live tensors on a CUDA device; 0 on others."""
        return requested_bytes() if self._device == "cuda" else 0

    def _refuse_growth(self, case: Case, phase: str, before: int) -> None:
        workload = self._workloads[case]
        grown = self._requested(workload) - before
        if grown > 0:
            gc.collect()  # garbage is not a leak
            grown = self._requested(workload) - before
        growth = self._growth.setdefault((case, phase), [0])
        growth.append(grown)
        guards.refuse_growth([*accumulate(growth)], _LEAKING_SLICES, "slices")

    def _check(self, workload: Workload, phase: str, snapshot: Any) -> None:
        with guards.settings_restored(set()):
            gate = workload.check(phase, snapshot)
        if not gate.passed:
            error, bound = gate.errors[gate.worst], gate.bounds[gate.worst]
            raise WrongResult(
                f"a timed call returned a wrong {gate.worst_in_words} for its inputs:"
                f" error {error:.2g}, bound {bound:.2g}"
            )

    def sustain(self, case: Case, phase: str, steps: int) -> dict[str, list[float]]:
        """Run `steps` steps back to back, and a random number more; return ms of each.

        `times`: of each step. `calls`: what its row shows, for a kernel the call without its new
        inputs and preparation. The result of the last step is kept for `check_last`: an
        implementation cannot know which step that will be.
        """
        further = min(steps, max(_FURTHER_STEPS, steps // 8))
        steps += 1 + random.SystemRandom().randrange(further)
        workload, self._last = self._workloads[case], None
        with in_context(workload), guards.settings_restored(set()):
            times, calls, self._last = guarded(
                case, phase, lambda: self._clock.sustain(workload, phase, steps)
            )
        return {"times": times, "calls": calls if self._benchmark.clock == "kernel" else times}

    def check_last(self, case: Case, phase: str) -> bool:
        """Check the result of the last step of `sustain`.

        Raises:
            WrongResult: the result differs from the reference.
        """
        workload, snapshot = self._workloads[case], self._last
        self._last = None
        if workload.check is not None:
            with in_context(workload):
                guarded_check(case, phase, lambda: self._check(workload, phase, snapshot))
        return True

    def host_and_loop(self, case: Case, phase: str, call_ms: float) -> dict[str, float]:
        """Return columns `host_ms` and `eager_ms` of a kernel; none for model steps or off CUDA.

        `host_ms`: time to queue one call. `eager_ms`: time of a call in a loop.
        """
        if self._benchmark.clock != "kernel":
            return {}
        workload, saved = self._workloads[case], self._saved_bytes[case, phase]
        with in_context(workload), guards.settings_restored(set()):
            host_ms, eager_ms = guarded(
                case, phase, lambda: self._clock.host_and_loop(workload, phase, call_ms, saved)
            )
        return {} if host_ms is None else {"host_ms": host_ms, "eager_ms": eager_ms}


def clear(device: str) -> None:
    """Free the compiled graphs, garbage and cached memory that a group leaves in the process."""
    # Dynamo falls back to eager after eight recompilations, so every group starts afresh.
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
    gc.collect()
    _empty_cache(device)


def _empty_cache(device: str) -> None:
    """Return the memory that PyTorch has cached and does not use to a CUDA device."""
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def in_context(workload: Workload):
    """Return the context manager in which a workload's calls run, e.g. one that sets TF32."""
    return workload.context() if workload.context else contextlib.nullcontext()
