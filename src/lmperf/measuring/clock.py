"""Clocks: device events after an L2 flush, and synchronised wall time. All times are in ms.

A clock times the calls of a phase one by one. The preparation of a call (fresh inputs, a forward
pass before a backward, cleared gradients) is not timed. The functions that tell the time are bound
when this module is imported, before any implementation could replace them.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns as now
from time import sleep
from typing import Any

import torch

from lmperf.benchmark import Phase, Workload
from lmperf.measuring import guards
from lmperf.measuring.clock_settings import (
    FLUSH_BYTES,
    HOST_CALLS,
    IDLE_TRIES,
    LONGEST_LEAD_MS,
    LOOP_BYTES,
    LOOP_CALLS,
    LOOP_MS,
    OTHER_CLOCK,
    OTHER_CLOCK_MS,
    OTHER_CLOCK_PAUSE_S,
    OTHER_CLOCK_SLICES,
    OUTLIVES_FOUND,
    OUTLIVES_MS,
    OUTLIVES_SHARE,
    OUTLIVES_TIMES,
    SHORTEST_LEAD_MS,
)

_elapsed_ms = torch.cuda.Event.elapsed_time
# At least the clock rate of any current GPU, so that a wait in cycles is never too short.
_CYCLES_PER_MS = 2_000_000


@dataclass
class Slice:
    """The times of one slice: a short run of consecutive calls of a phase.

    Attributes:
        times: ms of each valid call.
        host: ms until each call was queued; empty on a CPU.
        host_bound: whether the host queued a call too late even with the longest lead (wait of the
            device before a call), so that `times` hold host time.
        snapshot: copies of the tensors that the last call returned, made right after its timing;
            None if the slice is not checked.
        changed_settings: names of the torch settings that the implementation left changed.
    """

    times: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    host_bound: bool = False
    snapshot: Any = None
    changed_settings: set[str] = field(default_factory=set)

    def add(self, other: Slice) -> None:
        """Add the times of another slice of the same phase, and what was found in it."""
        self.times += other.times
        self.host += other.host
        self.host_bound |= other.host_bound
        self.changed_settings |= other.changed_settings


class ClocksDisagree(guards.WrongResult):
    """Raised if device events and the host's clock disagree on how long a slice took."""


class Clock:
    """Times slices (short runs of calls); subclasses define how one call is timed."""

    def __init__(self, device: str) -> None:
        self._synchronize = synchronizer(device)
        self._device = device
        self._random = random.SystemRandom()

    def slice(self, workload: Workload, name: str, calls: int, checked: bool) -> Slice:
        """Time `calls` calls of the phase `name`; if `checked`, copy the result of the last one.

        The check of the copy needs the inputs of its call, so no other call may follow.

        If the device's and the host's clock disagree, the slice is repeated after a pause, with
        twice the calls.

        Raises:
            ClocksDisagree: the clocks disagreed in several slices in a row.
        """
        for attempt in range(OTHER_CLOCK_SLICES):
            if attempt:
                sleep(OTHER_CLOCK_PAUSE_S * 2 ** (attempt - 1))
            try:
                return self._slice(workload, name, calls * 2**attempt, checked)
            except ClocksDisagree as disagreement:
                reason = disagreement
        raise reason

    def _slice(self, workload: Workload, name: str, calls: int, checked: bool) -> Slice:
        phase, found = workload.phases[name], Slice()
        self._begin()
        for left in reversed(range(calls)):
            with guards.settings_restored(found.changed_settings):
                self._call(workload, phase, found, checked and left == 0)
        self._finish(phase, found)
        return found

    def warm_up(self, workload: Workload, name: str, least_ms: float) -> tuple[float, float]:
        """Call for at least `least_ms`; return ms of the last call, and of a call with overhead.

        The overhead is all that a call needs outside its timed part, such as fresh inputs.
        """
        began, calls = now(), 0
        while True:
            found = self.slice(workload, name, 1, False)
            calls += 1
            elapsed = self._longest((now() - began) / 1e6)
            if elapsed >= least_ms:
                return found.times[-1], elapsed / calls

    def freshen(self, workload: Workload) -> None:
        """Write new inputs into the workload's tensors, from a seed that nobody can predict."""
        if workload.freshen is not None:
            workload.freshen(self._random.getrandbits(31))

    def _align(self) -> None:
        """Let the call begin at the same time in all processes that time it together."""

    def _longest(self, value: float) -> float:
        """Return the largest value among the processes that time together; here there is one.

        Every decision about the next call goes through it, so that all processes decide alike.
        """
        return value

    def _call(self, workload: Workload, phase: Phase, found: Slice, chosen: bool) -> None:
        """Time one call on fresh inputs and add it to `found`; repeat an invalid timing.

        chosen: whether to copy the result.
        """
        raise NotImplementedError

    def _begin(self) -> None:
        """Run before the first call of a slice."""

    def _finish(self, phase: Phase, found: Slice) -> None:
        """Run after the last call of a slice; may raise WrongResult."""

    def sustain(
        self, workload: Workload, name: str, steps: int
    ) -> tuple[list[float], list[float], Any]:
        """Run steps back to back; return ms of each, ms of each call, and the last result's copy.

        Each step begins with new inputs, as a training loop loads a batch, and with the preparation
        of its call; its call is what follows. The host does not wait between steps. On CUDA the
        times are those between events on the device, in which it may idle; on MPS the host waits,
        for want of such events.
        """
        phase = workload.phases[name]
        self._align()
        passed, begun = [self._mark()], []
        for _ in range(steps):
            result = None  # frees the previous result
            self.freshen(workload)
            state = phase.before()
            begun.append(self._mark())
            result = phase.run(state)
            passed.append(self._mark())
        del state
        snapshot = guards.snapshot(result)
        self._synchronize()
        between = _elapsed_ms if self._device == "cuda" else lambda one, other: (other - one) / 1e6
        times = [between(*pair) for pair in itertools.pairwise(passed)]
        return times, [between(*pair) for pair in zip(begun, passed[1:], strict=True)], snapshot

    def _mark(self) -> Any:
        """Queue a device event, on CUDA; otherwise return the time in ns."""
        if self._device == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        self._synchronize()
        return now()

    def host_and_loop(self, workload: Workload, name: str, call_ms: float, saved_bytes: float):
        """Return the host time of a call (launch overhead), and the time of a call in a loop.

        The host time is ms to queue one call on an idle device. The loop queues calls without
        waiting for the device. Both are None except on CUDA.

        Args:
            call_ms: ms of one call.
            saved_bytes: bytes that stay alive between the preparation of a call and the call; they
                limit the number of calls in the loop.
        """
        if self._device != "cuda":
            return None, None
        phase = workload.phases[name]
        hosts = [self._queueing_ms(workload, phase) for _ in range(HOST_CALLS)]
        most = min(LOOP_CALLS, LOOP_MS / max(call_ms, 1e-3), LOOP_BYTES / max(saved_bytes, 1))
        return statistics.median(hosts), self._loop_ms(workload, phase, max(1, int(most)))

    def _queueing_ms(self, workload: Workload, phase: Phase) -> float:
        self.freshen(workload)
        state = phase.before()
        self._synchronize()
        start = now()
        result = phase.run(state)
        elapsed = now() - start
        self._synchronize()
        del result
        return elapsed / 1e6

    def _loop_ms(self, workload: Workload, phase: Phase, calls: int) -> float:
        self.freshen(workload)
        states = [phase.before() for _ in range(calls)]
        self._synchronize()
        start = now()
        while states:
            phase.run(states.pop())
        self._synchronize()
        return (now() - start) / 1e6 / calls


class EventClock(Clock):
    """Times calls by CUDA events around each call, after overwriting the L2 cache.

    Before each call the device waits longer than the host needs to queue the call, so that device
    time is measured. If the device has passed the start event before the call is queued, the host
    was late and the events would measure host time: the call is repeated with a longer wait.
    """

    def __init__(self) -> None:
        super().__init__("cuda")
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._leads: dict[int, float] = {}
        self._outliving: dict[int, _Outliving] = {}
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def _call(self, workload: Workload, phase: Phase, found: Slice, chosen: bool) -> None:
        while True:
            self.freshen(workload)
            lead_ms = self._leads.get(id(phase), SHORTEST_LEAD_MS)
            state = phase.before()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            torch.cuda._sleep(int(lead_ms * _CYCLES_PER_MS))
            self._align()
            start.record()
            began = now()
            result = phase.run(state)
            host_ms = (now() - began) / 1e6
            end.record()
            if not self._longest(start.query()):
                break
            if lead_ms >= LONGEST_LEAD_MS:
                found.host_bound = True
                break
            host_ms = self._longest(host_ms)
            self._leads[id(phase)] = min(LONGEST_LEAD_MS, 2 * max(lead_ms, host_ms))
        if chosen:
            found.snapshot = guards.snapshot(result)
        found.host.append(host_ms)
        self._pairs.append((start, end))

    def _begin(self) -> None:
        self._pairs = []
        self._first = torch.cuda.Event(enable_timing=True)
        self._first.record()
        self._began = now()

    def _finish(self, phase: Phase, found: Slice) -> None:
        last, ended = self._passed(), now()
        suspicion = self._outliving.setdefault(id(phase), _Outliving())
        wait_ms = _wait_ms(ended, OUTLIVES_TIMES * suspicion.wait_ms)
        device_ms, host_ms = _elapsed_ms(self._first, last), (ended - self._began) / 1e6
        if not OTHER_CLOCK * host_ms - OTHER_CLOCK_MS <= device_ms <= host_ms + OTHER_CLOCK_MS:
            raise ClocksDisagree(
                f"its clock is wrong: {device_ms:.3g} ms between device events, but"
                f" {host_ms:.3g} ms by the host's clock"
            )
        found.times = [_elapsed_ms(start, end) for start, end in self._pairs]
        if suspicion.wait_ms:
            suspicion.judge(wait_ms)
        elif wait_ms > max(OUTLIVES_MS, OUTLIVES_SHARE * sum(found.times)) and (
            wait_ms > OUTLIVES_TIMES * self._idle_ms(len(self._pairs))
        ):
            suspicion.wait_ms = wait_ms
        else:
            suspicion.found = 0

    def _passed(self) -> torch.cuda.Event:
        """Queue an event behind all work on the current stream, wait for it, and return it."""
        last = torch.cuda.Event(enable_timing=True)
        last.record()
        last.synchronize()
        return last

    def _idle_ms(self, calls: int) -> float:
        """Return the longest of IDLE_TRIES waits, in ms, each after `calls` calls of nothing.

        They queue what a slice queues, but no call of the implementation: nothing can outlive them.
        """
        waits = []
        for _ in range(IDLE_TRIES):
            for _ in range(calls):
                self._flush.zero_()
                torch.cuda._sleep(int(SHORTEST_LEAD_MS * _CYCLES_PER_MS))
                for _ in range(2):
                    torch.cuda.Event(enable_timing=True).record()
            self._passed()
            waits.append(_wait_ms(now(), 0.0))
        return max(waits)


@dataclass
class _Outliving:
    """What is known of work of a phase that may outlive its calls.

    Attributes:
        wait_ms: the suspicious wait after the last slice, in ms; 0: there was none.
        found: number of times in a row that a suspicious wait was caused by work.
    """

    wait_ms: float = 0.0
    found: int = 0

    def judge(self, after_pause_ms: float) -> None:
        """Judge the suspicious wait by the wait of the next slice, which came after a pause.

        Raises:
            WrongResult: work has outlived its call in several slices.
        """
        suspicious_ms, self.wait_ms = self.wait_ms, 0.0
        self.found = self.found + 1 if suspicious_ms > OUTLIVES_TIMES * after_pause_ms else 0
        if self.found >= OUTLIVES_FOUND:
            raise guards.WrongResult(
                f"work outlives the call: the device was busy for {suspicious_ms:.2g} ms after the"
                " last event; all work must be on the current stream"
            )


def _wait_ms(ended: int, pause_ms: float) -> float:
    """Return ms of a wait for the device that begins `pause_ms` after `ended` (in ns)."""
    while now() < ended + pause_ms * 1e6:
        pass
    began = now()
    torch.cuda.synchronize()
    return (now() - began) / 1e6


class WallClock(Clock):
    """Times calls by wall time, with the device synchronised before and after each call."""

    def _call(self, workload: Workload, phase: Phase, found: Slice, chosen: bool) -> None:
        self.freshen(workload)
        state = phase.before()
        self._synchronize()
        self._align()
        start = now()
        result = phase.run(state)
        queued = now()
        self._synchronize()
        found.times.append((now() - start) / 1e6)
        if self._device == "cuda":
            found.host.append((queued - start) / 1e6)
        if chosen:
            found.snapshot = guards.snapshot(result)


def synchronizer(device: str) -> Callable[[], None]:
    """Return the function that waits for all work queued on a device (cuda, mps or cpu)."""
    if device == "cuda":
        return torch.cuda.synchronize
    if device == "mps":
        return torch.mps.synchronize
    return lambda: None


def clock_for(kind: str, device: str) -> Clock:
    """Return the clock of a device for kernels (kind `kernel`) or for model steps (kind `step`)."""
    return EventClock() if kind == "kernel" and device == "cuda" else WallClock(device)
