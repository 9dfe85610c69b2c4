"""The clock: ms of calls one by one, of steps back to back, and of a host that queues calls.

A kernel is timed by CUDA events around each call, with cold caches, while the device waits until
the host has queued the call; what is no kernel, or not on CUDA, by the host's clock. Steps run in a
stretch without a wait between them, as a training loop runs them. Every call has new inputs. The
functions that tell the time are bound here, before an implementation could replace them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from time import perf_counter_ns as now
from typing import Any

import torch

from lmperf.benchmark import Phase, Workload

_Event, _elapsed_ms = torch.cuda.Event, torch.cuda.Event.elapsed_time
# Bytes that are written before a kernel: several times the L2 cache of any current GPU.
FLUSH_BYTES = 256 * 2**20
# The device waits so long before a kernel, at first and at most, while the host queues it.
_SHORTEST_LEAD_MS, _LONGEST_LEAD_MS = 0.1, 16.0
# At least the clock rate of any current GPU, so that a wait in cycles is never too short.
_CYCLES_PER_MS = 2_000_000
# Calls that measure host time, and their ms at most. The loop that measures eager time has at
# most so many calls, ms, and bytes that its calls keep alive.
_HOST_CALLS, _HOST_MS = 7, 700.0
_LOOP_CALLS, _LOOP_MS, _LOOP_BYTES = 20, 40.0, 2 * 2**30


class Clock:
    """Times the calls of a workload.

    Args:
        device: cuda, mps or cpu.
        team: the ranks that time each call together (`ranks.Alone` for a single process).

    Attributes:
        late: ids of phases whose host was late behind the longest wait: it decides their time.
        ratios: id of a phase -> ms of its slices by device events, and by the host's clock.
        parts: id of a phase -> part -> its median ms in the last stretch.
    """

    def __init__(self, device: str, team: Any):
        self._device, self._team = device, team
        self._flush: torch.Tensor | None = None
        self._leads: dict[int, float] = {}
        self.synchronize = synchronizer(device)
        self.late: set[int] = set()
        self.ratios: dict[int, tuple[float, float]] = {}
        self.parts: dict[int, dict[str, float]] = {}

    def forget(self) -> None:
        """Forget phases that are no longer there: others may have their ids from now on."""
        for by_id in (self._leads, self.late, self.ratios, self.parts):
            by_id.clear()

    def fresh(self, work: Workload, name: str) -> tuple[Phase, Any]:
        """Write new inputs and prepare a call; return its phase and what its `run` takes."""
        if work.freshen is not None:
            work.freshen(self._team.random.getrandbits(31))
        return work.phases[name], work.phases[name].before()

    def kernels(self, work: Workload, name: str, number: int) -> tuple[list[float], Any]:
        """Time calls of a kernel one by one; return ms of each, and the result of the last.

        On CUDA the times are those of the device, unless the host is late.
        """
        if self._device != "cuda" or not self._team.queues:
            return self.calls(work, name, number)
        self.synchronize()
        first, begun = self._event(), now()
        marks: list[tuple[Any, Any]] = []
        while len(marks) < number:
            result = None  # freed before the next call
            phase, state = self.fresh(work, name)
            result, pair = self._queued(phase, state)
            marks += filter(None, [pair])
        last = self._event()
        self.synchronize()
        device_ms, host_ms = self.ratios.get(id(phase), (0.0, 0.0))
        elapsed = _elapsed_ms(first, last), (now() - begun) / 1e6
        self.ratios[id(phase)] = device_ms + elapsed[0], host_ms + elapsed[1]
        return self._team.longest([_elapsed_ms(*pair) for pair in marks]), result

    def _queued(self, phase: Phase, state: Any) -> tuple[Any, tuple | None]:
        """Run a call between two events, behind a wait of the device; None if the host was late.

        A later call then has a longer wait. A host that is late behind the longest wait decides the
        time of the call, which counts.
        """
        lead = self._leads.get(id(phase), _SHORTEST_LEAD_MS)
        self._empty_cache()
        torch.cuda._sleep(int(lead * _CYCLES_PER_MS))
        self._team.start()
        begin = self._event()
        began = now()
        result = phase.run(state)
        host_ms = (now() - began) / 1e6
        end = self._event()
        late, host_ms = self._team.longest([float(begin.query()), host_ms])
        if late and lead < _LONGEST_LEAD_MS:
            self._leads[id(phase)] = min(_LONGEST_LEAD_MS, 2 * max(lead, host_ms))
            return result, None
        if late:
            self.late.add(id(phase))
        return result, (begin, end)

    def _empty_cache(self) -> None:
        if self._flush is None:
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._flush.zero_()

    def calls(self, work: Workload, name: str, number: int) -> tuple[list[float], Any]:
        """Time calls one by one by the host's clock; the device is idle before and after each."""
        times = []
        for _ in range(number):
            result = None
            phase, state = self.fresh(work, name)
            self.synchronize()
            self._team.start()
            begin = now()
            result = phase.run(state)
            self.synchronize()
            times.append((now() - begin) / 1e6)
        return self._team.longest(times), result

    def stretch(self, work: Workload, name: str, steps: int) -> tuple[list[float], Any]:
        """Run steps back to back; return ms from the end of one to the end of the next, and the
        result of the last.

        Each step begins with new inputs, as a training loop loads a batch. On CUDA the host does
        not wait: the times are those between events on the device.
        """
        self.synchronize()
        self._team.start()
        marks, parts = [self._mark()], []
        for _ in range(steps):
            result = None
            phase, state = self.fresh(work, name)
            if phase.parts is None:
                result = phase.run(state)
            else:
                ended = [("", self._mark())]
                result = phase.parts(lambda part, ended=ended: ended.append((part, self._mark())))
                parts.append(ended)
            marks.append(self._mark())
        del state
        self.synchronize()
        if parts:
            self.parts[id(phase)] = self._medians(parts)
        # A step of several ranks ends on its last rank.
        ends = self._team.longest([self._between(marks[0], mark) for mark in marks])
        return [end - begin for begin, end in pairwise(ends)], result

    def _medians(self, steps: list[list[tuple[str, Any]]]) -> dict[str, float]:
        """Part -> its median ms in steps, each of which lists the ends of its parts.

        A part that a step has for each of its micro-batches is their sum.
        """
        times = []
        for ended in steps:
            times.append(Counter())
            for (_, begin), (part, end) in pairwise(ended):
                times[-1][part] += self._between(begin, end)
        return {part: median(one[part] for one in times) for part in times[0]}

    def _event(self) -> Any:
        event = _Event(enable_timing=True)
        event.record()
        return event

    def _mark(self) -> Any:
        if self._device == "cuda":
            return self._event()
        self.synchronize()
        return now()

    def _between(self, begin: Any, end: Any) -> float:
        return _elapsed_ms(begin, end) if self._device == "cuda" else (end - begin) / 1e6

    def host(self, work: Workload, name: str, call_ms: float, saved_bytes: float) -> dict:
        """Return `host_ms` and `eager_ms` of a kernel on CUDA; {} elsewhere.

        host_ms: until a call returns on an idle device. eager_ms: of a call among calls that are
        queued one behind another.

        Args:
            call_ms: ms of one call.
            saved_bytes: bytes that stay alive between the preparation of a call and the call.
        """
        if self._device != "cuda":
            return {}
        most = min(_LOOP_CALLS, _LOOP_MS / max(call_ms, 1e-3), _LOOP_BYTES / max(saved_bytes, 1))
        calls = max(1, min(_HOST_CALLS, int(_HOST_MS / max(call_ms, 1e-3))))
        queueing = [self._queueing_ms(work, name) for _ in range(calls)]
        looped = self._looped_ms(work, name, max(1, int(most)))
        host_ms, eager_ms = self._team.longest([median(queueing), looped])
        return {"host_ms": host_ms, "eager_ms": eager_ms}

    def _queueing_ms(self, work: Workload, name: str) -> float:
        phase, state = self.fresh(work, name)
        self.synchronize()
        begin = now()
        result = phase.run(state)
        elapsed = now() - begin
        self.synchronize()
        del result
        return elapsed / 1e6

    def _looped_ms(self, work: Workload, name: str, calls: int) -> float:
        phase, state = self.fresh(work, name)
        states = [state, *(phase.before() for _ in range(calls - 1))]
        del state
        self.synchronize()
        begin = now()
        while states:
            phase.run(states.pop())
        self.synchronize()
        return (now() - begin) / 1e6 / calls


def synchronizer(device: str) -> Callable[[], None]:
    """Return the function that waits for all work queued on a device (cuda, mps or cpu)."""
    return (lambda: None) if device == "cpu" else getattr(torch, device).synchronize
