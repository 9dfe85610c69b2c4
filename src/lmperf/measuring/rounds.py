"""Times cases in turn, in rounds, until every pair of cases has a verdict.

A round is one slice (a short run of timed calls) of every entry (a case and a phase); the first
entry rotates from round to round. The median of each slice is kept. Two entries are compared by the
ratio of their medians in each round, so that drift of the machine cancels.

Rounds are added until every comparison is decided (`lmperf.statistics.decided`) or the time limit
has passed (`Pace.cap_s`).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lmperf.measuring.state import HOST_BOUND, State, combine
from lmperf.measuring.sustained import Stretch
from lmperf.statistics import decided

# The smallest and largest of six rounds enclose the true median with 97 % confidence.
LEAST_ROUNDS = 6
# Numbers of rounds after which comparisons are tested: few, since each test may decide wrongly.
LOOKS = (LEAST_ROUNDS, 9, 14, 20)
MOST_REPETITIONS = 20
# Share of the rounds not in LOOKS in which the result of one timed call is checked.
CHECKED_ROUNDS = 0.2
# Times that a phase is timed on a disturbed machine; each has rounds for up to `Pace.cap_s`.
MOST_TAKES = 2
# Seconds that a throttled device rests before the slice is repeated.
_REST_S = 0.05
# Number of repeats in a row that were throttled again, after which an entry's slices are no longer
# repeated: its calls themselves throttle the device.
_MOST_RETAKES = 3


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes:
        warm_up_ms: ms of warm-up of each entry.
        slice_ms: ms of one slice (a short run of timed calls).
        cap_s: seconds after which no round is added to one phase of a group.
    """

    warm_up_ms: float
    slice_ms: float
    cap_s: float


PACES = {
    ("kernel", "cuda"): Pace(20, 6, 0.9),
    ("step", "cuda"): Pace(40, 40, 3),
    ("kernel", "cpu"): Pace(20, 15, 0.5),
    ("step", "cpu"): Pace(50, 30, 1),
}
# Paces for a run of a few rows. A full report on a CPU uses PACES, as it should take minutes.
_PATIENT = {("kernel", "cpu"): Pace(50, 60, 10), ("step", "cpu"): Pace(100, 120, 20)}


def pace_of(kind: str, device: str, patient: bool = False) -> Pace:
    """Return how long to measure with a clock (`kernel` or `step`) on a device.

    `patient`: measure longer on a CPU, for a run of a few rows.
    """
    known = PACES | _PATIENT if patient else PACES
    return known[kind, "cuda" if device == "cuda" else "cpu"]


@dataclass
class SliceResult:
    """The times of one slice (a short run of timed calls), and the state of the machine meanwhile.

    Attributes:
        times: ms of each call.
        state: clock, power, throttling and load of the machine during the slice.
        host: ms until each call was queued; empty on a CPU.
        host_bound: whether the host queued calls too late, so that `times` hold host time.
        changed_settings: names of the torch settings that the implementation left changed.
    """

    times: list[float]
    state: State
    host: list[float] = field(default_factory=list)
    host_bound: bool = False
    changed_settings: set[str] = field(default_factory=set)


class Timer(Protocol):
    """Warms up and times the calls of an entry (a case and a phase).

    A method that returns None reports that the entry failed; the entry is then not timed further.
    """

    def warm_up(self, entry: Any, least_ms: float) -> tuple[float, float] | None:
        """Call the entry for at least `least_ms`; return ms of one call without and with overhead.

        The overhead is all that a call needs outside its timed part, such as fresh inputs.
        """

    def slice(self, entry: Any, repetitions: int, checked: bool) -> SliceResult | None:
        """Time `repetitions` calls; if `checked`, compare the result of one with the reference."""

    def between(self) -> None:
        """Called once, after half of the least number of rounds."""


@dataclass
class Timings:
    """The times of one entry (a case and a phase) in ms.

    Attributes:
        times: of every call.
        rounds: median of the slice in each round.
        host: times until each call was queued.
        states: state of the machine during each slice.
        marks: names of the conditions that affect the times, such as `capped`, in order.
        stretch: the same steps back to back; None if they were not timed so.
        others: further columns of the row.
    """

    times: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    marks: dict[str, None] = field(default_factory=dict)
    stretch: Stretch | None = None
    others: dict[str, Any] = field(default_factory=dict)

    def add(self, found: SliceResult) -> None:
        """Add the times of the slice in a round."""
        self.times += found.times
        self.rounds.append(float(np.median(found.times)))
        self.host += found.host
        self.states.append(found.state)
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
        """The state of the machine, combined over all slices."""
        return combine(self.states)

    @property
    def median_ms(self) -> float:
        """The median of all calls."""
        return float(np.median(self.times))

    @property
    def is_loaded(self) -> bool:
        """Whether other programs used the machine during the rounds or the stretch."""
        return any(state.loaded for state in self._parts)

    @property
    def other_load(self) -> float | None:
        """The load of other programs during the rounds or the stretch, the larger of the two."""
        known = (state.other_load for state in self._parts if state.other_load is not None)
        return max(known, default=None)

    @property
    def _parts(self) -> list[State]:
        return [self.state, *([self.stretch.state] if self.stretch else [])]

    @property
    def is_host_bound(self) -> bool:
        """Whether the host needs nearly the whole time of a call to queue it."""
        return bool(self.host) and bool(np.median(self.host) > HOST_BOUND * self.median_ms)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a row; `lmperf.statistics` compares them."""
        state = self.state
        p20, median, p80 = np.quantile(self.times, (0.2, 0.5, 0.8))
        columns = {
            "median_ms": float(median),
            "mean_ms": float(np.mean(self.times)),
            "std_ms": float(np.std(self.times, ddof=1)) if len(self.times) > 1 else 0.0,
            "p20_ms": float(p20),
            "p80_ms": float(p80),
            "least_ms": min(self.times),
            "repetitions": len(self.times),
            "rounds_ms": _joined(self.rounds),
            "clock_mhz": state.clock_mhz,
            "power_w": state.power_w,
            "temperature_c": state.temperature_c,
            "other_load": self.other_load,
            "marks": ";".join(self.marks),
        }
        if self.host:
            columns["host_ms"] = float(np.median(self.host))
        if state.clock_mhz is not None:
            columns["rounds_mhz"] = _joined([s.clock_mhz for s in self.states])
        if state.throttle is not None:
            columns["throttle"] = hex(state.throttle)
        return columns | (self.stretch.columns() if self.stretch else {}) | self.others


def _joined(values: Sequence[float | None]) -> str:
    return ";".join("" if value is None else repr(value) for value in values)


def time_in_turn(
    entries: Iterable[Any],
    timer: Timer,
    pace: Pace,
    chance: random.Random | None = None,
    clock: Callable[[], float] = time.monotonic,
    twins: Collection[Any] = (),
) -> dict[Any, Timings]:
    """Time entries in turn until every pair is decided; return the timings by entry.

    Entries that failed are missing in the result.

    Args:
        entries: (case, phase) pairs, as `timer` knows them.
        timer: runs the calls of an entry.
        pace: how long to measure.
        chance: random generator that chooses the rounds in which a result is checked.
        clock: returns seconds.
        twins: entries of an A/A test; whether they differ from others need not be decided.
    """
    chance = chance or random.SystemRandom()
    rounds = _Rounds(entries, timer, pace, twins)
    ends = clock() + pace.cap_s
    for number in itertools.count(1):
        look = number in LOOKS
        # A round that may be the last one is checked, to find implementations that became wrong.
        rounds.run(checked=look or chance.random() < CHECKED_ROUNDS)
        if number == LEAST_ROUNDS // 2:
            timer.between()
        over = number >= LOOKS[-1] or (number >= LEAST_ROUNDS and clock() >= ends)
        if (look or over) and (rounds.is_decided() or over):
            break
    if not look:
        rounds.run(checked=True)
    return rounds.timings


class _Rounds:
    """Runs rounds (one slice of every entry), and holds the timings of the working entries."""

    def __init__(
        self, entries: Iterable[Any], timer: Timer, pace: Pace, twins: Collection[Any]
    ) -> None:
        self._timer, self._twins = timer, twins
        self._repetitions: dict[Any, int] = {}
        self._retakes: dict[Any, int] = {}
        self._number = 0
        self.timings: dict[Any, Timings] = {}
        for entry in entries:
            warmed = timer.warm_up(entry, pace.warm_up_ms)
            if warmed is not None:
                self._repetitions[entry] = _repetitions(*warmed, pace)
                self.timings[entry] = Timings()

    def run(self, checked: bool) -> None:
        """Run one round: a slice of every entry, beginning with the next entry in each round."""
        order = list(self.timings)
        start = self._number % max(len(order), 1)
        for entry in order[start:] + order[:start]:
            found = self._slice(entry, checked)
            if found is not None:
                self.timings[entry].add(found)
        self._number += 1

    def _slice(self, entry: Any, checked: bool) -> SliceResult | None:
        """Time a slice, and once more if the device was throttled; drop the entry if it fails."""
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
        """Return whether no comparison of two entries needs further rounds."""
        compared = [entry for entry in self.timings if entry not in self._twins]
        rounds = [np.array(self.timings[entry].rounds) for entry in compared]
        return all(decided(base, other) for base, other in itertools.combinations(rounds, 2))


def _repetitions(call_ms: float, with_overhead_ms: float, pace: Pace) -> int:
    """Return the number of calls in a slice of `pace.slice_ms`, at most MOST_REPETITIONS.

    A call counts with its own time, or a third of its time with overhead if that is longer.
    """
    weight = max(call_ms, with_overhead_ms / 3, 1e-6)
    return max(1, min(MOST_REPETITIONS, int(pace.slice_ms / weight)))
