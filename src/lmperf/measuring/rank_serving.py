"""Answers the worker's requests, in a rank process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lmperf.benchmark import (
    Case,
    Implementation,
    Rank,
    RankedTimed,
    Unsupported,
    Workload,
    WrongResult,
    resolve,
)
from lmperf.gate import Gate
from lmperf.measuring import guards, reference
from lmperf.measuring.clock import synchronizer
from lmperf.measuring.faults import failure_row
from lmperf.measuring.footprint import phase_memory, requested_bytes, settled
from lmperf.measuring.lockstep import Lockstep
from lmperf.measuring.prepared import clear, in_context
from lmperf.measuring.rank_clock import rank_clock
from lmperf.measuring.readings import Reading


class RankServing:
    """Holds this rank's part of the cases of the current group, and runs the worker's requests."""

    def __init__(self, rank: Rank):
        self._rank, self._lockstep = rank, Lockstep(rank)
        self._synchronize = synchronizer(rank.device)
        self._forget()

    def answer(self, name: str, arguments: list) -> tuple:
        """Run the request `name`; return the reply."""
        try:
            return "done", getattr(self, f"_{name}")(*arguments)
        except Unsupported as reason:
            return "unsupported", str(reason)
        except WrongResult as reason:
            return "wrong", str(reason)
        except Exception as error:
            return "failed", failure_row(error)

    def _forget(self) -> None:
        self._benchmark: RankedTimed | None = None
        self._clock: Any = None
        self._seed = 0
        self._shared: dict[str, Any] = {}
        self._workloads: dict[Case, Workload] = {}
        self._last: Any = None
        self._requested: dict[tuple[Case, str], int] = {}

    def _declare(
        self, entry: str, stem: str, external: dict[str, Implementation], seed: int
    ) -> None:
        self._clear()
        self._benchmark, self._seed = resolve(entry)(stem, external), seed
        self._clock = rank_clock(self._benchmark.clock, self._rank, self._lockstep)

    def _prepare(self, case: Case) -> dict[str, Any]:
        """Return what the worker must know of the workload: the work of each phase, and flags."""
        made = self._benchmark.prepare_rank(case, self._rank, self._seed, self._shared)
        self._workloads[case] = made
        return {
            "phases": {
                name: {"flops": one.flops, "bytes": one.bytes, "full_flops": one.full_flops}
                for name, one in made.phases.items()
            },
            "compiles": made.compiles,
            "columns": made.columns,
            "has_gate": made.gate is not None,
            "has_check": made.check is not None,
        }

    def _call(self, case: Case, phase: str) -> None:
        with self._using(case) as workload:
            timed = workload.phases[phase]
            timed.run(timed.before())
            self._synchronize()

    def _gate(self, case: Case, phase: str) -> dict[str, Any]:
        with self._using(case) as workload:
            return {**self._judged(workload.gate([phase])), "columns": workload.columns}

    def _check(self, case: Case, phase: str) -> dict[str, Any]:
        snapshot, self._last = self._last, None
        with self._using(case) as workload:
            return self._judged(workload.check(phase, snapshot))

    def _judged(self, gate: Gate) -> dict[str, Any]:
        failed = self._lockstep.longest(not gate.passed)
        pytorch = dict(gate.pytorch()) if failed and gate.pytorch else {}
        found = {"errors": dict(gate.errors), "bounds": dict(gate.bounds)}
        return {**found, "where": dict(gate.where), "pytorch": pytorch}

    def _memory(self, case: Case, phase: str, seed: int) -> dict[str, Any]:
        with self._using(case, seed) as workload:
            self._clock.freshen(workload)
            timed = workload.phases[phase]
            return phase_memory(workload, timed, self._rank.device, self._lockstep.longest)

    def _warm_up(self, case: Case, phase: str, least_ms: float, seed: int) -> tuple[float, float]:
        with self._using(case, seed) as workload:
            return self._clock.warm_up(workload, phase, least_ms)

    def _slice(
        self, case: Case, phase: str, calls: int, checked: bool, seed: int
    ) -> dict[str, Any]:
        with self._using(case, seed) as workload:
            found = self._clock.slice(workload, phase, calls, checked)
        self._last = found.snapshot
        return {
            "times": found.times,
            "host": found.host,
            "host_bound": found.host_bound,
            "changed_settings": found.changed_settings,
            "requested": self._requested_after(case, phase),
        }

    def _requested_after(self, case: Case, phase: str) -> int:
        """Return the bytes of live tensors on a CUDA device, without garbage; 0 on a CPU."""
        if self._rank.device != "cuda":
            return 0
        found, before = requested_bytes(), self._requested.get((case, phase), 0)
        if found > before:
            found = settled(requested_bytes, before)
        self._requested[case, phase] = found
        return found

    def _sustain(
        self, case: Case, phase: str, steps: int, seed: int
    ) -> tuple[list[float], list[float]]:
        with self._using(case, seed) as workload:
            times, calls, self._last = self._clock.sustain(workload, phase, steps)
        return times, calls

    def _host_and_loop(
        self, case: Case, phase: str, call_ms: float, saved_bytes: float, seed: int
    ) -> tuple[float | None, float | None]:
        with self._using(case, seed) as workload:
            return self._clock.host_and_loop(workload, phase, call_ms, saved_bytes)

    def _observe(
        self,
        entry: str,
        stem: str,
        external: dict[str, Implementation],
        case: Case,
        phase: str,
        seed: int,
    ) -> list[dict[str, Any]]:
        return resolve(entry)(stem, external).observe_rank(case, phase, self._rank, seed)

    def _reference(self) -> Reading:
        try:
            return reference.measure(self._rank.device)
        finally:
            reference.release()

    def _clear(self) -> int:
        """Free everything that the group left; return the bytes that are still allocated."""
        self._forget()
        clear(self._rank.device)
        if self._rank.device != "cuda":
            return 0
        return requested_bytes()

    @contextlib.contextmanager
    def _using(self, case: Case, seed: int | None = None) -> Iterator[Workload]:
        """Yield the workload of a case in its context, with torch's settings restored after it."""
        workload = self._workloads[case]
        if seed is not None:
            self._clock.seed(seed)
        with in_context(workload), guards.settings_restored(set()):
            yield workload
