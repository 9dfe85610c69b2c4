"""Seconds of a job by kind of work.

The worker says each step before it takes it; the seconds until it says the next are that step's.
So nothing inside the measured code counts anything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

# What the worker calls a step: the column of its seconds.
STEPS = {
    "timing": "timing_s",
    "first call": "first_calls_s",
    "observing": "observing_s",
    "preparing": "preparing_s",
    "checking": "checking_s",
    "memory": "memory_s",
}
START, OTHER = "start_s", "other_s"
KINDS = (*STEPS.values(), START, OTHER)


class Stopwatch:
    """Seconds of a job by kind of work, from one step to the next.

    Args:
        age: seconds that the job's process had lived before; they count as its start.
        clock: seconds, never running backwards.
    """

    def __init__(self, age: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._begin = self._since = clock()
        self._kind = START
        self._started = datetime.now(UTC).timestamp() - age
        self._age = age
        self.seconds = dict.fromkeys(KINDS, 0.0) | {START: age}

    def enter(self, words: str) -> None:
        """What follows is a step that the worker calls by these words."""
        now = self._clock()
        self.seconds[self._kind] += now - self._since
        self._since, self._kind = now, STEPS.get(words, OTHER)

    def row(self, stem: str, preset: str, groups: int, rows: int) -> dict[str, object]:
        """The job's cost until now."""
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
    """Seconds since this process began, where the system tells (Linux); else 0."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    begun = int(stat.read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun)
