"""Times cases in turn: one slice of calls each, round after round, until every pair is decided.

In each round every entry (a case and phase) runs one slice, and the order rotates. The first entry
of each dtype runs a second slice, which is compared with its first (an A/A test). The median of
each slice is kept. The ratio of two entries is taken round by round, so that drift of the machine
cancels; the ratio of the two slices of one entry gives the noise floor.

Rounds are added until every comparison is decided (`lmperf.statistics.decided`) or the time limit
of the pace has passed.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lmperf.measuring.state import State, combine
from lmperf.statistics import decided

# The smallest and largest of six rounds enclose the true median with 97 % confidence.
LEAST_ROUNDS = 6
# Rounds after which a decision is tested: few, since every test may decide wrongly.
LOOKS = (LEAST_ROUNDS, 9, 14, 20)
MOST_REPETITIONS = 20
# Longer calls are not timed against themselves: that would cost more than it tells.
LONGEST_AGAIN_MS = 120.0
# Share of the other rounds in which the result of one call is checked.
CHECKED_ROUNDS = 0.2
# How long a throttled device rests before its slice is repeated, in seconds.
_REST_S = 0.05
# After so many useless repeats the call itself throttles the device, and nothing is repeated.
_MOST_RETAKES = 3


@dataclass(frozen=True)
class Pace:
    """How long to measure: ms of warm-up, ms of one slice, seconds for one phase of a group."""

    warm_up_ms: float
    slice_ms: float
    cap_s: float


PACES = {
    ("kernel", "cuda"): Pace(20, 6, 0.9),
    ("step", "cuda"): Pace(40, 40, 3),
    ("kernel", "cpu"): Pace(20, 15, 0.5),
    ("step", "cpu"): Pace(50, 30, 1),
}
# A full report on a CPU should take minutes; a run of a few rows may take longer for each.
_PATIENT = {("kernel", "cpu"): Pace(50, 60, 10), ("step", "cpu"): Pace(100, 120, 20)}


def pace_of(kind: str, device: str, patient: bool = False) -> Pace:
    """The pace of a clock (kernel or step) on a device; `patient` for a run of a few rows."""
    known = PACES | _PATIENT if patient else PACES
    return known[kind, "cuda" if device == "cuda" else "cpu"]


@dataclass
class SliceResult:
    """One slice: ms of its calls, and the state of the machine meanwhile.

    Attributes:
        host: ms until each call was queued; empty on a CPU.
        host_bound: the host queued calls too late, so that `times` hold host time.
        changed_settings: settings of torch that the implementation left changed.
    """

    times: list[float]
    state: State
    host: list[float] = field(default_factory=list)
    host_bound: bool = False
    changed_settings: set[str] = field(default_factory=set)


class Timer(Protocol):
    """Runs the calls of an entry; a result of None means that the entry failed and is dropped."""

    def dtype(self, entry: Any) -> Hashable:
        """The dtype of an entry: the first entry of each is timed against itself."""

    def warm_up(self, entry: Any, least_ms: float) -> tuple[float, float] | None:
        """Call for at least `least_ms`; ms of one call, and ms of a call with its overhead."""

    def slice(self, entry: Any, repetitions: int, checked: bool) -> SliceResult | None:
        """Time calls; if `checked`, compare the result of one with the reference."""


@dataclass
class Timings:
    """The times of one entry in ms: of all calls, and the median of each round."""

    times: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    marks: dict[str, None] = field(default_factory=dict)

    def add(self, found: SliceResult) -> None:
        """Add the slice of a round."""
        self.times += found.times
        self.rounds.append(float(np.median(found.times)))
        self.host += found.host
        self.states.append(found.state)
        self._mark(found)

    def add_again(self, found: SliceResult) -> None:
        """Add the second slice of a round, which gives the noise."""
        self.again.append(float(np.median(found.times)))
        self._mark(found)

    def _mark(self, found: SliceResult) -> None:
        marks = {
            "host_bound": found.host_bound,
            "capped": found.state.capped,
            "settings": bool(found.changed_settings),
        }
        self.marks |= {name: None for name, holds in marks.items() if holds}

    @property
    def state(self) -> State:
        """The state of the machine over all slices."""
        return combine(self.states)

    def columns(self) -> dict[str, Any]:
        """The columns of a row; `lmperf.statistics` says how they are compared."""
        state = self.state
        marks = dict(self.marks) | ({"loaded": None} if state.loaded else {})
        p20, median, p80 = np.quantile(self.times, (0.2, 0.5, 0.8))
        columns = {
            "median_ms": float(median),
            "mean_ms": float(np.mean(self.times)),
            "std_ms": float(np.std(self.times, ddof=1)) if len(self.times) > 1 else 0.0,
            "p20_ms": float(p20),
            "p80_ms": float(p80),
            "repetitions": len(self.times),
            "rounds_ms": _joined(self.rounds),
            "again_ms": _joined(self.again),
            "clock_mhz": state.clock_mhz,
            "power_w": state.power_w,
            "temperature_c": state.temperature_c,
            "other_load": state.other_load,
            "marks": ";".join(marks),
        }
        if self.host:
            columns["host_ms"] = float(np.median(self.host))
        if state.clock_mhz is not None:
            columns["rounds_mhz"] = _joined([s.clock_mhz for s in self.states])
        if state.throttle is not None:
            columns["throttle"] = hex(state.throttle)
        return columns


def _joined(values: Sequence[float | None]) -> str:
    return ";".join("" if value is None else repr(value) for value in values)


def time_in_turn(
    entries: Iterable[Any],
    timer: Timer,
    pace: Pace,
    chance: random.Random | None = None,
    clock: Callable[[], float] = time.monotonic,
    again: bool = True,
) -> dict[Any, Timings]:
    """Time entries in turn until every pair is decided; the timings of those that did not fail.

    Args:
        chance: chooses the rounds in which a result is checked.
        clock: returns seconds.
        again: whether the first entry of each dtype runs two slices a round.
    """
    chance = chance or random.SystemRandom()
    rounds = _Rounds(entries, timer, pace, again)
    ends = clock() + pace.cap_s
    for number in itertools.count(1):
        look = number in LOOKS
        # A round that may be the last one has a check, which finds whatever changed on the way.
        rounds.run(checked=look or chance.random() < CHECKED_ROUNDS)
        over = number >= LOOKS[-1] or (number >= LEAST_ROUNDS and clock() >= ends)
        if (look or over) and (rounds.is_decided() or over):
            break
    if not rounds.is_decided():
        rounds.mark("time_cap")
    if not look:
        rounds.run(checked=True)
    return rounds.timings


class _Rounds:
    """The entries that have not failed, and their timings so far."""

    def __init__(self, entries: Iterable[Any], timer: Timer, pace: Pace, again: bool) -> None:
        self._timer = timer
        self._repetitions: dict[Any, int] = {}
        self._retakes: dict[Any, int] = {}
        self._number = 0
        self.timings: dict[Any, Timings] = {}
        for entry in entries:
            warmed = timer.warm_up(entry, pace.warm_up_ms)
            if warmed is not None:
                self._repetitions[entry] = _repetitions(*warmed, pace)
                self.timings[entry] = Timings()
        first: dict[Hashable, Any] = {}
        for entry in self.timings if again else ():
            first.setdefault(timer.dtype(entry), entry)
        self._twice = list(first.values())

    def run(self, checked: bool) -> None:
        """One slice of every entry; each round begins with the next one."""
        order = list(self.timings)
        start = self._number % max(len(order), 1)
        for entry in order[start:] + order[:start]:
            found = self._slice(entry, checked)
            if found is not None:
                self.timings[entry].add(found)
        for entry in self._twice:
            if entry in self.timings and self.timings[entry].rounds[0] <= LONGEST_AGAIN_MS:
                found = self._slice(entry, False)
                if found is not None:
                    self.timings[entry].add_again(found)
        self._number += 1

    def _slice(self, entry: Any, checked: bool) -> SliceResult | None:
        """A slice, repeated once if the device was throttled; drops an entry that fails."""
        found = self._timer.slice(entry, self._repetitions[entry], checked)
        retakes = self._retakes.get(entry, 0)
        if found is not None and found.state.capped and retakes < _MOST_RETAKES:
            time.sleep(_REST_S)
            found = self._timer.slice(entry, self._repetitions[entry], checked)
            helped = found is not None and not found.state.capped
            self._retakes[entry] = 0 if helped else retakes + 1
        if found is None:
            self.timings.pop(entry, None)
        return found

    def is_decided(self) -> bool:
        """Whether no pair of entries needs further rounds."""
        rounds = [np.array(timings.rounds) for timings in self.timings.values()]
        return all(decided(base, other) for base, other in itertools.combinations(rounds, 2))

    def mark(self, name: str) -> None:
        """Mark all entries."""
        for timings in self.timings.values():
            timings.marks[name] = None


def _repetitions(call_ms: float, with_overhead_ms: float, pace: Pace) -> int:
    """The number of calls that fill a slice; the overhead of a call counts at a third."""
    weight = max(call_ms, with_overhead_ms / 3, 1e-6)
    return max(1, min(MOST_REPETITIONS, int(pace.slice_ms / weight)))
