"""Counts the seconds that a measuring job spends on each kind of work.

A worker sends a message before each step. The time until the next message counts as the time of the
step, so the measured code itself needs no counters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

# Name of a step in the worker's message -> column of `cost.csv` for the seconds of the step.
STEPS = {
    "timing": "timing_s",
    "back to back": "sustained_s",
    "references": "references_s",
    "first call": "first_calls_s",
    "observing": "observing_s",
    "preparing": "preparing_s",
    "checking": "checking_s",
    "memory": "memory_s",
}
START, OTHER = "start_s", "other_s"
KINDS = (*STEPS.values(), START, OTHER)


class Stopwatch:
    """Counts the seconds of a measuring job by kind of work.

    Args:
        age: seconds that the process ran before this object was made; they count as start-up.
        clock: returns monotonic seconds.
    """

    def __init__(self, age: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._begin = self._since = clock()
        self._kind = START
        self._started = datetime.now(UTC).timestamp() - age
        self._age = age
        self.seconds = dict.fromkeys(KINDS, 0.0) | {START: age}

    def enter(self, words: str) -> None:
        """End the current step, and begin the step that the worker announced as `words`."""
        now = self._clock()
        self.seconds[self._kind] += now - self._since
        self._since, self._kind = now, STEPS.get(words, OTHER)

    def row(self, stem: str, preset: str, groups: int, rows: int) -> dict[str, object]:
        """Return a row of `cost.csv` with the seconds of each kind of work until now."""
        self.enter("saving")
        return {
            "stem": stem,
            "started_at": _iso(self._started),
            "finished_at": _iso(datetime.now(UTC).timestamp()),
            "preset": preset,
            "groups": groups,
            "rows": rows,
            "wall_s": self._age + self._since - self._begin,
            **self.seconds,
        }


def _iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds")


def process_age() -> float:
    """Return the seconds since this process began; 0 on systems other than Linux."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    begun = int(stat.read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun)
