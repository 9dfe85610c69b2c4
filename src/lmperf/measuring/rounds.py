"""Timing in turn: slices of the calls of several seats, round after round, until it is decided.

A seat is a case in the worker that holds it. In each round every seat runs a slice of calls of a
phase, in rotating order; the first seat of each numerics runs a second one. The median of each
slice is kept: the ratio of two seats is taken round by round, so that what drifts with the machine
drifts in both, and the ratio of the two slices of one seat is the noise floor.

Rounds are added until every comparison is decided (`lmperf.statistics.decided`), or the time that
the pace allows is over.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lmperf.measuring.state import State, combine
from lmperf.statistics import decided

# With six rounds the smallest and the largest enclose the median of all with 97 % certainty.
LEAST_ROUNDS = 6
# When it is looked at whether all is decided: seldom, since each look is a chance to err.
LOOKS = (LEAST_ROUNDS, 9, 14, 20)
MOST_REPETITIONS = 20
# A longer call is not run once more against itself: it would cost more than it tells.
LONGEST_AGAIN_MS = 120.0
# How often a round, beside those after which it is looked, has a call whose result is checked.
CHECKED_ROUNDS = 0.2
# A capped or loaded device gets this long to come to rest before a slice is taken again.
_REST_S = 0.05
# Where taking again has not helped so often, it is the call itself that brings the device there.
_MOST_RETAKES = 3


@dataclass(frozen=True)
class Pace:
    """Milliseconds of warm-up and of a slice, and the seconds that a phase of a group may take."""

    warm_up_ms: float
    slice_ms: float
    cap_s: float


PACES = {
    ("kernel", "cuda"): Pace(20, 6, 0.9),
    ("step", "cuda"): Pace(40, 40, 3),
    ("kernel", "cpu"): Pace(20, 15, 0.5),
    ("step", "cpu"): Pace(50, 30, 1),
}
# A report on a processor is to be there within minutes; who asks for few rows may wait for them.
_PATIENT = {("kernel", "cpu"): Pace(50, 60, 10), ("step", "cpu"): Pace(100, 120, 20)}


def pace_of(kind: str, device: str, patient: bool = False) -> Pace:
    """The pace of a clock (kernel or step) on a device; patient: of few rows."""
    known = PACES | _PATIENT if patient else PACES
    return known[kind, "cuda" if device == "cuda" else "cpu"]


@dataclass
class Taken:
    """One slice as the conductor has it: ms of its calls, and the machine meanwhile."""

    times: list[float]
    state: State
    host: list[float] = field(default_factory=list)
    host_bound: bool = False
    left: set[str] = field(default_factory=set)


class Seat(Protocol):
    """A case in a worker."""

    numerics: Hashable

    def warm_up(self, least_ms: float) -> tuple[float, float]:
        """ms of a call, and ms a call with all that is done around it."""

    def slice(self, repetitions: int, checked: bool) -> Taken | None:
        """Time calls; None where the seat is lost, and is left out from then on."""


@dataclass
class Timings:
    """Times of one seat and phase in ms: all of them, and by round the medians and clocks."""

    times: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    marks: dict[str, None] = field(default_factory=dict)

    def add(self, taken: Taken) -> None:
        self.times += taken.times
        self.rounds.append(float(np.median(taken.times)))
        self.host += taken.host
        self.states.append(taken.state)
        self._mark(taken)

    def add_again(self, taken: Taken) -> None:
        self.again.append(float(np.median(taken.times)))
        self._mark(taken)

    def _mark(self, taken: Taken) -> None:
        marks = {
            "host_bound": taken.host_bound,
            "capped": taken.state.capped,
            "settings": bool(taken.left),
        }
        self.marks |= {name: None for name, holds in marks.items() if holds}

    @property
    def state(self) -> State:
        """The machine while all of it was timed."""
        return combine(self.states)

    def columns(self) -> dict[str, Any]:
        """The statistics of a row; `lmperf.statistics` has what they are worth."""
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


def in_turn(
    seats: Sequence[Seat],
    pace: Pace,
    chance: random.Random | None = None,
    clock: Callable[[], float] = time.monotonic,
    again: bool = True,
) -> dict[Seat, Timings]:
    """Time seats in turn until all is decided; the timings of those that were not lost.

    chance: draws the rounds whose results are checked. clock: seconds. again: whether the first
    seat of each numerics runs twice a round; there may be another of the same code.
    """
    chance = chance or random.SystemRandom()
    turn = _Turn(seats, pace, again)
    ends = clock() + pace.cap_s
    for number in itertools.count(1):
        look = number in LOOKS
        # A round after which it may be over has a call that is checked: what changed on the way is
        # seen here.
        turn.round(checked=look or chance.random() < CHECKED_ROUNDS)
        over = number >= LOOKS[-1] or (number >= LEAST_ROUNDS and clock() >= ends)
        if (look or over) and (turn.is_decided() or over):
            break
    if not turn.is_decided():
        turn.mark("time_cap")
    if not look:
        turn.round(checked=True)
    return turn.timings


class _Turn:
    """The seats that are left, and what they have taken so far."""

    def __init__(self, seats: Sequence[Seat], pace: Pace, again: bool) -> None:
        self._repetitions: dict[Seat, int] = {}
        self._retakes: dict[Seat, int] = {}
        self._number = 0
        self.timings: dict[Seat, Timings] = {}
        for seat in seats:
            warmed = seat.warm_up(pace.warm_up_ms)
            if warmed is not None:
                self._repetitions[seat] = _repetitions(*warmed, pace)
                self.timings[seat] = Timings()
        self._twice = _first_of_each_numerics(self.timings) if again else set()

    def round(self, checked: bool) -> None:
        """One slice of every seat, beginning with another one each time."""
        order = list(self.timings)
        start = self._number % max(len(order), 1)
        for seat in order[start:] + order[:start]:
            taken = self._taken(seat, checked)
            if taken is not None:
                self.timings[seat].add(taken)
        for seat in self._twice & self.timings.keys():
            if self.timings[seat].rounds[0] <= LONGEST_AGAIN_MS:
                taken = self._taken(seat, False)
                if taken is not None:
                    self.timings[seat].add_again(taken)
        self._number += 1

    def _taken(self, seat: Seat, checked: bool) -> Taken | None:
        """A slice; once more where the machine was not itself. A seat that is lost is left out."""
        taken = seat.slice(self._repetitions[seat], checked)
        if taken is not None and taken.state.capped and self._may_retake(seat):
            time.sleep(_REST_S)
            again = seat.slice(self._repetitions[seat], checked)
            helped = again is not None and not again.state.capped
            self._retakes[seat] = 0 if helped else self._retakes.get(seat, 0) + 1
            taken = again
        if taken is None:
            self.timings.pop(seat, None)
        return taken

    def _may_retake(self, seat: Seat) -> bool:
        return self._retakes.get(seat, 0) < _MOST_RETAKES

    def is_decided(self) -> bool:
        rounds = [np.array(timings.rounds) for timings in self.timings.values()]
        return all(decided(base, other) for base, other in itertools.combinations(rounds, 2))

    def mark(self, name: str) -> None:
        for timings in self.timings.values():
            timings.marks[name] = None


def _first_of_each_numerics(seats) -> set[Seat]:
    first: dict[Hashable, Seat] = {}
    for seat in seats:
        first.setdefault(seat.numerics, seat)
    return set(first.values())


def _repetitions(call_ms: float, around_ms: float, pace: Pace) -> int:
    """Calls of a slice: as many as fill it, with what is done around a call counted at a third."""
    weight = max(call_ms, around_ms / 3, 1e-6)
    return max(1, min(MOST_REPETITIONS, int(pace.slice_ms / weight)))
