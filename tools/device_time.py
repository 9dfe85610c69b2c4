"""What tuning scripts time with: the project's own clock, calls in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import cache

from lmperf.benchmark import Phase, Workload
from lmperf.measuring.clock import EventClock
from lmperf.measuring.rounds import Pace, in_turn

# A search has hundreds of variants: the warm-up and the slices are short.
_PACE = Pace(warm_up_ms=5, slice_ms=3)


def median_ms(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Median device time of each call in milliseconds, in turn, with a cold L2."""
    phases = [(Workload({}), Phase(lambda _, call=call: call())) for call in calls]
    timings = in_turn(_clock(), phases, _PACE, announce=lambda _: None)
    return [statistics.median(timing.times) for timing in timings]


@cache
def _clock() -> EventClock:
    return EventClock()
