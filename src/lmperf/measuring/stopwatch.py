"""The seconds of a job by kind of work.

A worker announces each step before it takes it; the seconds until the next announcement are those
of the step. So nothing has to be counted inside the measured code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

# Step, as the worker announces it -> the column of its seconds.
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
    """Counts the seconds of a job by kind of work.

    Args:
        age: seconds that the process had run before; they count as start-up.
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
        """Begin the step that the worker announced with these words."""
        now = self._clock()
        self.seconds[self._kind] += now - self._since
        self._since, self._kind = now, STEPS.get(words, OTHER)

    def row(self, stem: str, preset: str, groups: int, rows: int) -> dict[str, object]:
        """A row of `cost.csv` with the cost until now."""
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
    """Seconds since this process began; 0 on systems other than Linux."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    begun = int(stat.read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun)
