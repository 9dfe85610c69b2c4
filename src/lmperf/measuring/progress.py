"""Shows `12 of 40 cases, 2 min 10 s, about 5 min left`, from this run's own pace."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

_APART_S = 15.0


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def saying_to(log: Path | None) -> Callable[[str], None]:
    """Return a function that prints a line, and appends it to a log file, if any."""
    if log is None:
        return _print

    def say(line: str) -> None:
        _print(line)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {line}\n")

    return say


class Progress:
    """Counts cases, and says a line after each group and every 15 s within one.

    Args:
        say: takes a line.
        clock: returns seconds.
    """

    def __init__(
        self,
        name: str,
        cases: int,
        say: Callable[[str], None] = _print,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name, self._cases, self._say, self._clock = name, cases, say, clock
        self._began = self._said = clock()
        self._done = 0
        self.note(f"{cases} case{'s' * (cases != 1)} to measure")

    def note(self, text: str) -> None:
        """Say a line."""
        self._said = self._clock()
        self._say(f"[{self._name}] {text}")

    def step(self, text: str) -> None:
        """Say what is done now, unless a line was said within the last 15 s."""
        if self._clock() - self._said >= _APART_S:
            self.note(f"{self.words}: {text}")

    def done(self, cases: int, text: str) -> None:
        """Count cases as measured."""
        self._done += cases
        self.note(f"{self.words}: {text}")

    @property
    def words(self) -> str:
        """How many cases are done, the time since the start, and about the time left."""
        passed = self._clock() - self._began
        words = f"{self._done} of {self._cases} cases, {duration(passed)}"
        if not 0 < self._done < self._cases:
            return words
        left = passed / self._done * (self._cases - self._done)
        return f"{words}, about {duration(left, exact=False)} left"


def duration(seconds: float, exact: bool = True) -> str:
    """Return a time in words: `45 s`, `2 min 10 s`, `1 h 5 min`; `2 min` if not exact."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    if not exact:
        return f"{round(seconds / 60)} min"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
