"""How long to measure: calls in turn until every pair is decided, train steps in two stretches.

Calls: a round is a slice (some calls) of every entry, and the entry that begins rotates, so that
drift of the machine cancels in the ratios of a round. Train steps: a device at its power limit
settles within a second or two, and pauses cool it. So each entry has a contiguous stretch after a
lead-in, all entries one after another, and then once more in opposite order: linear drift cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count, pairwise
from statistics import fmean, median
from typing import Any

from lmperf.benchmark import Benchmark
from lmperf.statistics import decided, median_interval

# After these numbers of rounds, the pairs of entries are tested: few, as each test may be wrong.
# The smallest and largest of six rounds enclose the true median with 97 % confidence.
LOOKS = (6, 9, 14, 20)
MOST_CALLS = 20
# Stretches into which the steps of each of the two visits are divided.
STRETCHES = 5
# A visit is planned for so much longer than it must last, as a step may become faster.
_MARGIN = 1.05

# (entry, calls) -> ms of each call, and of all with their overhead; None: the entry failed.
Run = Callable[[Any, int], tuple[list[float], float] | None]


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes:
        warm_ms, slice_ms, cap_s: of calls in turn: warm-up, a slice, and all rounds of a phase.
        lead_s, visit_s, steps, most_s: of a visit of train steps: least time of its lead-in, least
            time and steps of what is timed, and the time after which no step begins.
    """

    warm_ms: float
    slice_ms: float
    cap_s: float
    lead_s: float = 1.5
    visit_s: float = 3.0
    steps: int = 20
    most_s: float = 60.0


_ON_CPU = {"lead_s": 0.0, "visit_s": 2.0, "steps": 3}
_PACES = {
    ("kernel", "gpu"): Pace(20, 6, 0.9),
    ("step", "gpu"): Pace(40, 40, 3),
    ("kernel", "cpu"): Pace(20, 15, 0.5, **_ON_CPU),
    ("step", "cpu"): Pace(50, 30, 1, **_ON_CPU),
}
# On a CPU, where two versions of the code are compared. A full report should take minutes.
_PATIENT = {
    ("kernel", "cpu"): Pace(50, 60, 10, **_ON_CPU),
    ("step", "cpu"): Pace(100, 120, 20, **_ON_CPU),
}


def is_back_to_back(benchmark: Benchmark, phase: str) -> bool:
    """Whether a phase is timed back to back: train steps are, other calls in turn."""
    return phase == "train_step" and getattr(benchmark, "clock", "") == "step"


def pace_of(
    clock: str, device: str, steps: int | None = None, patient: bool = False, share: float = 1.0
) -> Pace:
    """Return how long to measure with a clock (`kernel` or `step`) on a device.

    steps: the number of steps of a visit, of a benchmark whose steps last for seconds. patient:
    whether to compare two versions of the code. share: of the usual duration of a visit.
    """
    paces = _PACES | _PATIENT if patient else _PACES
    pace = paces[clock, "cpu" if device == "cpu" else "gpu"]
    if steps is not None:
        return replace(pace, lead_s=0.0, visit_s=0.0, steps=steps)
    return replace(pace, lead_s=share * pace.lead_s, visit_s=share * pace.visit_s)


@dataclass(frozen=True)
class Times:
    """Times of an entry.

    Attributes:
        parts: ms: the median of each round, or the mean of each stretch.
        calls: how many calls were timed.
        in_turn: whether `parts` are rounds.
    """

    parts: Sequence[float]
    calls: int
    in_turn: bool = True

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of a row. `low_ms`, `high_ms`: the interval of the median of rounds; the least
        and greatest stretch."""
        ends = median_interval(self.parts) if self.in_turn else (min(self.parts), max(self.parts))
        low, high = map(float, ends)
        times = {"median_ms": median(self.parts), "low_ms": low, "high_ms": high}
        return {**times, "n": self.calls, "rounds_ms": ";".join(map(repr, self.parts))}


def in_turn(
    entries: Sequence[Any], run: Run, pace: Pace, seconds: Callable[[], float]
) -> dict[Any, Times]:
    """Time calls in turn; entries that fail are missing in the result.

    seconds: the clock; the same on all ranks.
    """
    calls = {entry: number for entry in entries if (number := _calls(entry, run, pace))}
    parts: dict[Any, list[float]] = {entry: [] for entry in calls}
    ends = seconds() + pace.cap_s
    for number in count(1):
        order = list(parts)
        first = number % max(1, len(order))
        for entry in order[first:] + order[:first]:
            timed = run(entry, calls[entry])
            if timed is None:
                del parts[entry]
            else:
                parts[entry].append(median(timed[0]))
        over = number >= LOOKS[-1] or (number >= LOOKS[0] and seconds() >= ends)
        if over or not parts or (number in LOOKS and _all_decided(parts.values())):
            return {
                entry: Times(rounds, len(rounds) * calls[entry]) for entry, rounds in parts.items()
            }


def _all_decided(parts: Any) -> bool:
    return all(decided(first, second) for first, second in combinations(parts, 2))


def _calls(entry: Any, run: Run, pace: Pace) -> int | None:
    """Warm an entry up; return how many of its calls are a slice, None if it fails.

    A call counts with its own time, or with a third of its time with overhead if that is longer.
    """
    total, number = 0.0, 1
    while total < pace.warm_ms:
        timed = run(entry, number)
        if timed is None:
            return None
        times, all_ms = timed
        total, number = total + all_ms, 2 * number
    weight = max(times[-1], all_ms / len(times) / 3, 1e-6)
    return max(1, min(MOST_CALLS, int(pace.slice_ms / weight)))


def visit(entry: Any, run: Run, pace: Pace) -> list[float] | None:
    """Return ms of the steps of a contiguous visit, after its lead-in; None if the entry fails."""
    steps, passed_s = 1, 0.0
    while True:
        timed = run(entry, steps)
        if timed is None:
            return None
        passed_s += timed[1] / 1e3
        step_ms = max(timed[1] / len(timed[0]), 1e-3)
        if passed_s >= pace.lead_s:
            break
        steps = math.ceil((pace.lead_s - passed_s) * 1e3 / step_ms)
    wanted = max(pace.steps, math.ceil(_MARGIN * pace.visit_s * 1e3 / step_ms))
    most = max(1, int(pace.most_s * 1e3 / step_ms))
    timed = run(entry, max(min(wanted, most), min(pace.steps, 3)))
    return None if timed is None else timed[0]


def stretches(visits: Sequence[Sequence[float]]) -> Times:
    """Return the times of visits, each divided into stretches of consecutive steps."""
    parts = []
    for times in visits:
        ends = [len(times) * n // STRETCHES for n in range(STRETCHES + 1)]
        pieces = (times[begin:end] for begin, end in pairwise(ends))
        parts += [fmean(piece) for piece in pieces if piece]
    return Times(parts, sum(map(len, visits)), in_turn=False)
