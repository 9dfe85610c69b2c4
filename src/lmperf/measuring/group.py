"""Prepares the cases of a group, gates each once, and times them; runs in a worker or a rank.

Each step of a case is told before it begins, so that a crash or a hang is that of the case that
ran. An exception becomes a row, and the process goes on, unless its device no longer works.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from lmperf.benchmark import Benchmark, Case, Observed, Unsupported, Workload, WrongResult
from lmperf.errors import Interrupted, message_of, trace_of, user_line
from lmperf.gate import UNCHECKED
from lmperf.measuring import interpreter, rounds, vectors
from lmperf.measuring.clock import Clock, now
from lmperf.measuring.device_time import CALLS, device_time
from lmperf.measuring.failures import Failed, Harmful, Row, failure_row, lacks_memory
from lmperf.measuring.guards import Guard
from lmperf.measuring.isolation import Worlds
from lmperf.measuring.memory import out_of_memory, phase_memory
from lmperf.measuring.ranks import Alone
from lmperf.measuring.sensors import MOST_LOAD, Load
from lmperf.measuring.weights import Weights

_LASTING = "lasting"  # status of a step that changed what cannot be put back
_LONG_MS = 100.0  # a call that takes longer is profiled once
_WAITS = (
    "other processes use more than a tenth of the processors: what they disturb is timed twice,"
    " so this run takes longer"
)


@dataclass
class _Ready:
    """A case that is prepared.

    Attributes:
        guard: of an implementation that is not the project's own.
        columns: phase -> columns known before it is timed.
    """

    work: Workload
    guard: Guard | None
    columns: dict[str, Row] = field(default_factory=dict)


class Group:
    """The cases of a group.

    Args:
        done: (case, phase) pairs that have rows.
        alone: cases that ran out of memory beside the others.
        seed: of the inputs.
        team: the ranks that measure together, or `ranks.Alone`.
        tell: sends the supervisor a message.
        worlds: those of the implementations that this process has measured.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        cases: list[Case],
        done: Collection[tuple[Case, str]],
        alone: Collection[Case],
        device: str,
        seed: int,
        team: Alone,
        tell: Callable[..., None],
        worlds: Worlds,
    ):
        self._benchmark, self._cases, self._done, self._alone = benchmark, cases, done, alone
        self._device, self._seed, self._team, self._tell = device, seed, team, tell
        self._clock, self._weights, self._worlds = Clock(device, team), Weights(), worlds
        self._contexts: dict[Case, Callable[[], AbstractContextManager]] = {}
        self._own_pid = os.getpid()
        self._pid = self._own_pid if team.rank is None else os.getppid()
        self._is_kernel = getattr(benchmark, "clock", None) == "kernel"
        self._shared: dict[str, dict[str, Any]] = {}
        self._ready: dict[Case, _Ready] = {}
        self._full: dict[Case, None] = {}  # those that lack memory beside the others
        self._beside = 1  # how many cases are measured together now
        self._slices: dict[tuple[Case, str], int] = {}
        self._call_ms: dict[tuple[Case, str], float] = {}

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
            self._time(phase)
        gc.unfreeze()
        self._ready, self._shared, self._contexts, self._weights = {}, {}, {}, Weights()
        _reset_compiler()
        self._recover()
        gc.freeze()  # again what is imported

    def _phases(self, case: Case) -> list[str]:
        chosen = [p for p in self._benchmark.phases_of(case) if p in self._benchmark.phases]
        return [phase for phase in chosen if (case, phase) not in self._done]

    def _rows(self, case: Case, phase: str, *rows: Row) -> None:
        self._done = {*self._done, (case, phase)}
        more: Row = {"seed": self._seed}
        may_compile = self._benchmark.implementation(case.implementation).may_compile
        if self._device == "cpu" and may_compile and (width := vectors.bits()):
            more["vector_bits"] = width
        found = [{"status": "ok", **row, **more} for row in rows]
        for row in found if self._worlds.apart else ():
            row["marks"] = ";".join(filter(None, (row.get("marks"), "process")))
        self._tell(rows=found, case=self._cases.index(case), phase=phase)

    def _step(
        self, words: str, case: Case, phase: str | None, run: Callable[[], Any], lasts_s: float = 0
    ) -> Any:
        """Run a step of a case on every rank, and return its result.

        End the process if the step changed what cannot be put back.

        lasts_s: how long the step takes beyond what a step usually takes.

        Raises:
            Failed: it raised an exception, here or on another rank.
        """
        self._tell(step=words, case=self._cases.index(case), phase=phase, lasts_s=lasts_s)
        failure = result = None
        try:
            with self._within(case, often=words == "timing"):
                result = run()
        except BaseException as error:  # also sys.exit and KeyboardInterrupt of an implementation
            # In a process that the implementation has forked, or in one that is being ended.
            if os.getpid() != self._own_pid or isinstance(error, Interrupted):
                raise
            failure = failure_row(error)
            if failure["status"] == "crash":
                self._tell(traceback=trace_of(error), words=f"{case.name}: {failure['reason']}")
            if isinstance(error, Harmful):
                self._tell(failed=failure)
                os._exit(1)
        if self._worlds.lasting:
            failure = {"status": _LASTING, "reason": ", ".join(self._worlds.lasting)}
        if failure := self._team.agreed(failure):
            if failure["status"] == _LASTING:
                self._end_as_changed(failure["reason"])
            del result
            self._recover()
            raise Failed(dict(failure))
        return result

    def _end_as_changed(self, changed: str) -> None:
        if not self._team.is_first:
            signal.pause()  # the end of one rank would end the first one before it has told
        self._tell(changed=changed)
        os._exit(1)

    @contextmanager
    def _within(self, case: Case, often: bool = False) -> Iterator[None]:
        """The context of a step: what the implementation has set, if it is not the project's, and
        in it the context of the case, such as one that allows TF32."""
        one = self._benchmark.external.get(case.implementation)
        world = self._worlds.of(one.name, one.module, often) if one else nullcontext()
        with world, self._contexts.get(case, nullcontext)():
            yield

    @contextmanager
    def _ours(self, case: Case) -> Iterator[None]:
        """The context of code of the project in a step of another implementation."""
        with self._worlds.of(None), self._contexts.get(case, nullcontext)():
            yield

    def _recover(self) -> None:
        """Free what a step has left; end the process if its device no longer works."""
        gc.collect()
        try:
            self._clock.synchronize()
            if self._device == "cuda":
                torch.cuda.empty_cache()
        except Exception as error:
            self._tell(failed=failure_row(error))
            os._exit(1)

    def _observe(self, case: Case) -> None:
        for phase in self._phases(case):
            see = partial(self._step, "observing", case, phase, partial(self._seen, case, phase))
            try:
                rows = self._quietly_seen(see) if self._benchmark.has_times else see()
            except Failed as failed:
                rows = [failed.row]
            self._rows(case, phase, *rows)
        _reset_compiler()
        self._recover()

    def _quietly_seen(self, see: Callable[[], list[Row]]) -> list[Row]:
        """Return observed rows with the load of others."""
        load, rows = self._quieter(see)
        marks = {"marks": "loaded"} if self._device != "cuda" and load > MOST_LOAD else {}
        return [{**row, "other_load": load, **marks} for row in rows]

    def _seen(self, case: Case, phase: str) -> list[Row]:
        if self._team.rank:
            return self._benchmark.observe_rank(case, phase, self._team.rank, self._seed)
        launched = interpreter.launches()
        rows = self._benchmark.observe(case, phase, self._device, self._seed)
        if case.implementation in self._benchmark.external:
            interpreter.require_none(launched, self._device)
        return rows

    def prepare(self, case: Case) -> None:
        """Prepare and check a case; what it did to the weights of the group is undone."""
        if not (phases := self._phases(case)):
            return
        try:
            work = self._step("preparing", case, None, partial(self._workload, case))
            self._contexts[case] = work.context or nullcontext
            if len(self._cases) > 1:
                self._step("preparing", case, None, partial(self._weights.keep, work.resident))
            self._check(case, work, phases)
        except Failed as failed:
            self._lose(case, phases, failed.row)
        else:
            self._restore(case)

    def _lose(self, case: Case, phases: Sequence[str], row: Row) -> None:
        """Tell the rows of phases that failed, unless the case is measured again alone."""
        self._restore(case)
        known = self.ready(case)
        columns = {
            phase: known.pop(phase, {}) for phase in phases if (case, phase) not in self._done
        }
        if self._beside > 1 and lacks_memory(row):
            self._full[case] = None
            return
        for phase, of in columns.items():
            self._rows(case, phase, {**of, **row})

    def _restore(self, case: Case) -> None:
        if self._weights.restore():
            self._tell(note=f"weights or moments that {case.name} changed were put back")

    def _workload(self, case: Case) -> Workload:
        # A model class of a user has other weights.
        external = case.implementation in self._benchmark.external
        shared = self._shared.setdefault(case.implementation if external else "", {})
        if self._team.rank:
            return self._benchmark.prepare_rank(case, self._team.rank, self._seed, shared)
        return self._benchmark.prepare(case, self._device, self._seed, shared)

    def _check(self, case: Case, work: Workload, phases: list[str]) -> None:
        """Call each phase, weigh it, gate the case once; add it to the cases that are ready.

        Raises:
            Failed: a step failed, or the gate.
        """
        for phase in [phase for phase in phases if phase not in work.phases]:
            reason = f"{case.implementation} has no such phase"
            self._rows(case, phase, failure_row(Unsupported(reason)))
        phases = [phase for phase in phases if phase in work.phases]
        guard = self._guard(case)
        ready, launched = _Ready(work, guard), interpreter.launches()
        if work.expect is not None:
            self._step("checking", case, None, partial(self._part_of_gate, work.expect))
        first_s = 0.0
        for phase in phases:
            call = partial(self._first_call, work, phase, guard)
            first_s += self._step("first call", case, phase, call)
        seconds = {"compile_s": first_s} if work.compiles or guard else {}
        for phase in phases:
            # Also the first call that has all state of an optimizer.
            run = partial(self._memory, work, phase)
            found = self._step("memory", case, phase, run)
            if found.get("peak_mib", work.least_mib) < work.least_mib:
                words = f"{found.pop('peak_mib'):.4g} MiB of at least {work.least_mib:.4g}"
                self._tell(note=f"the peak of {case.name} is left out: only {words} were seen")
            one = work.phases[phase]
            counted = {"flops": one.flops, "full_flops": one.full_flops, "bytes": one.bytes}
            ready.columns[phase] = {**counted, **seconds, **found}
        gated: Row = {}
        if phases and work.gate is not None:
            gated = self._step("checking", case, None, partial(self._gate, work, phases))
            if gated["status"] != "ok":
                raise Failed({**seconds, **work.columns, **gated})
            ready.columns = {phase: of | gated for phase, of in ready.columns.items()}
        try:
            interpreter.require_none(launched, self._device, interpreter.CHECKED)
        except Unsupported as error:
            raise Failed(gated | failure_row(error)) from None
        for phase in phases if guard else ():
            check = partial(guard.prepared, work, phase)
            self._step("looking for cheats", case, phase, check)
        columns = self._team.largest(work.columns)
        ready.columns = {phase: columns | of for phase, of in ready.columns.items()}
        self._ready[case] = ready

    def _guard(self, case: Case) -> Guard | None:
        if case.implementation not in self._benchmark.external:
            return None
        # A CUDA graph writes every result to the same memory, by design.
        keeps_results = self._is_kernel and not case.axes.get("cuda_graph")
        return Guard(self._device, self._team, keeps_results, partial(self._ours, case))

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
            with warnings.catch_warnings(record=True) as said, suppress(Exception):
                warnings.simplefilter("always")
                with torch.autograd.set_detect_anomaly(True, check_nan=False):
                    self._call(work, phase)
            for one in said:
                error.add_note(str(one.message))
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

    def _gate(self, work: Workload, phases: list[str]) -> Row:
        return self._team.worst(dict(self._part_of_gate(partial(work.gate, phases)).columns))

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
        run = partial(self._clock.fresh, work, name)
        return self._team.largest(phase_memory(work, run, self._device))

    def _time(self, phase: str) -> None:
        """Time a phase of all ready cases, and tell their rows."""
        cases = [case for case, one in self._ready.items() if phase in one.columns]
        if not cases:
            return
        back_to_back = rounds.is_back_to_back(self._benchmark, phase)
        for case, row in (self._stretches if back_to_back else self._in_turn)(cases, phase).items():
            try:
                row |= self._finished(case, phase, row)
            except Failed as failed:
                self._lose(case, [phase], failed.row)
            else:
                self._rows(case, phase, {**self._ready[case].columns[phase], **row})

    def _is_ready(self, case: Case, phase: str) -> bool:
        return phase in self._ready[case].columns

    def _in_turn(self, cases: list[Case], phase: str) -> dict[Case, Row]:
        """Time a phase of cases in rounds; on a CPU once more if others used the processors."""

        def rounds_of_all() -> dict[Case, rounds.Times]:
            going = [case for case in cases if self._is_ready(case, phase)]
            return rounds.in_turn(
                going, partial(self.slice, phase), self._pace(), self._team.seconds
            )

        load, found = self._quieter(rounds_of_all)
        # Rows share an id, since only times taken in turn may be paired.
        more = {"other_load": load, "together": uuid.uuid4().hex[:12]}
        for case in found:
            self._restore(case)
        return {c: {**of.columns, **more} for c, of in found.items() if self._is_ready(c, phase)}

    def _stretches(self, cases: list[Case], phase: str) -> dict[Case, Row]:
        """Time the train steps of cases back to back, in two visits in opposite order."""
        visits: dict[Case, list[tuple[float, list[float]]]] = {case: [] for case in cases}
        run, pace = partial(self.slice, phase), self._pace()
        once = self._benchmark.steps is not None
        for case in cases if once else (*cases, *reversed(cases)):
            if self._is_ready(case, phase):
                visits[case].append(self._quieter(partial(rounds.visit, case, run, pace)))
                self._restore(case)
        return {
            case: rounds.stretches([times for _, times in of]).columns
            | {"other_load": max(load for load, _ in of)}
            for case, of in visits.items()
            if self._is_ready(case, phase)
        }

    def _quieter(self, take: Callable[[], Any]) -> tuple[float, Any]:
        """Return the load of others and the result of a take, on a CPU of the quieter one of two if
        others used the processors; a take that failed (None) is final."""
        takes = []
        for _ in range(2 if self._device == "cpu" else 1):
            others, found = Load(self._pid), take()
            (load,) = self._team.longest([others.share()])
            takes.append((load, found))
            if found is None or load <= MOST_LOAD:
                return takes[-1]
            if self._device == "cpu":
                self._tell(note=_WAITS)
        return min(takes, key=lambda one: one[0])

    def _pace(self) -> rounds.Pace:
        of = self._benchmark
        return rounds.pace_of(of.clock, self._device, of.steps, share=of.share)

    def slice(self, phase: str, case: Case, calls: int) -> tuple[list[float], float] | None:
        """Time calls; return ms of each, and of all with their overhead; None if the case fails."""
        number = self._slices[case, phase] = self._slices.get((case, phase), 0) + 1
        lasts_s = calls * self._call_ms.get((case, phase), 0.0) / 1e3
        run = partial(self._timed, case, phase, calls, number in rounds.LOOKS)
        try:
            times, all_ms = self._step("timing", case, phase, run, lasts_s)
        except Failed as failed:
            self._lose(case, [phase], failed.row)
            return None
        self._call_ms[case, phase] = all_ms / calls
        return times, all_ms

    def _timed(
        self, case: Case, phase: str, calls: int, is_look: bool
    ) -> tuple[list[float], float]:
        """Time calls of a ready case; return ms of each, and of all with their overhead.

        is_look: whether to compare results with the reference, if the case is not the project's.
        """
        one, began, times = self._ready[case], now(), []
        run, parts = self._clock.kernels if self._is_kernel else self._clock.calls, [calls]
        if rounds.is_back_to_back(self._benchmark, phase):
            run, is_look = self._clock.stretch, True
        elif one.guard and is_look:
            parts = one.guard.parts(calls)
        for part in parts:
            found, result = run(one.work, phase, part)
            times += found
            (all_ms,) = self._team.longest([(now() - began) / 1e6])
            if one.guard:
                one.guard.timed(one.work, phase, result, is_look)
            del result
        return times, all_ms

    def _finished(self, case: Case, phase: str, row: Row) -> Row:
        """Return further columns of a phase, after its timing.

        Raises:
            Failed: a clock is wrong, or the device works longer than the times tell.
        """
        one = self._ready[case]
        found = achieved({**one.columns[phase], **row})
        if one.guard:  # what became wrong after the last look
            self._step("timing", case, phase, partial(self._timed, case, phase, 3, True))
        if id(one.work.phases[phase]) in self._clock.late:
            found["bound"] = "host"
        profiled = partial(self._profiled, one, phase, row["median_ms"])
        found |= self._step("profiling", case, phase, profiled)
        # A rank that waits for a late one looks busy.
        waits = (
            self._device != "cuda" or found.get("bound") == "host" or "communication_ms" in found
        )
        loaded = ["loaded"] if waits and row["other_load"] > MOST_LOAD else []
        return {**found, "marks": ";".join([*(one.guard.marks if one.guard else ()), *loaded])}

    def _profiled(self, one: _Ready, phase: str, call_ms: float) -> Row:
        columns: Row = {}
        if self._is_kernel:
            saved = 2**20 * one.columns[phase].get("saved_mib", 0.0)
            columns |= self._clock.host(one.work, phase, call_ms, saved)
        if self._device == "cuda" and (one.guard or not self._is_kernel):
            # A long kernel consists of many short ones, whose records take seconds to read.
            calls = 1 if self._is_kernel and call_ms > _LONG_MS else CALLS
            measured = device_time(partial(self._prepared_call, one.work, phase), calls)
            if one.guard:
                clocks = self._clock.ratios.get(id(one.work.phases[phase]), (1.0, 1.0))
                one.guard.finished(clocks, measured.device_ms, call_ms)
            columns |= {} if self._is_kernel else measured.columns(call_ms)
        return columns

    def _prepared_call(self, work: Workload, name: str) -> Callable[[], object]:
        phase, state = self._clock.fresh(work, name)
        return partial(phase.run, state)

    def ready(self, case: Case) -> dict[str, Row]:
        """Phase -> columns known before its timing, of the phases that can be timed."""
        return self._ready[case].columns if case in self._ready else {}


def _reset_compiler() -> None:
    """Forget compiled graphs: Dynamo gives up after eight recompilations."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


def achieved(row: Row) -> Row:
    """Return the columns TFLOP/s and GB/s of a row, from its median time."""
    seconds, columns = row["median_ms"] / 1e3, {}
    if row.get("flops"):
        columns["tflops"] = row["flops"] / seconds / 1e12
    if row.get("bytes"):
        columns["bandwidth_gbps"] = row["bytes"] / seconds / 1e9
    return columns
