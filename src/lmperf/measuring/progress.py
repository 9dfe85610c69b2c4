"""Shows the progress of a benchmark: as a bar on a terminal, and as lines in a log."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from lmperf.measuring.forecast import Forecast

_SECONDS_BETWEEN_STEPS = 15.0


class Reporter:
    """Shows which group and step is being measured.

    Args:
        stem: stem of the benchmark.
        total: number of groups to measure.
        log: file that gets a line for each group, and every 15 s within a long group, if any.
        forecast: estimates the time left; None: no time is shown.
        unit: what is counted.
    """

    def __init__(
        self,
        stem: str,
        total: int,
        log: Path | None,
        forecast: Forecast | None = None,
        unit: str = "group",
    ):
        self._stem, self._done = stem, 0
        self._of = f"{total} {unit}" if total == 1 else f"{total} {unit}s"
        self._forecast = forecast
        self._last_line = time.monotonic()
        self._log = open(log, "a", buffering=1) if log else None  # noqa: SIM115 - closed in __exit__
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[step]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(stem, total=total, left="", step="")

    def __enter__(self) -> Reporter:
        self._bar.start()
        self._line(_joined(f"{self._of} to measure", self._left()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if self._log:
            self._log.close()

    def step(self, text: str) -> None:
        """Show the current step: at once on a terminal, but only every 15 s in the log."""
        self._bar.update(self._task, left=self._left(), step=text)
        if time.monotonic() - self._last_line > _SECONDS_BETWEEN_STEPS:
            self._line(f"{self._counts()} {text}")

    def note(self, text: str) -> None:
        """Show a line of information for the user."""
        self._line(text)

    def finished(self, text: str) -> None:
        """Count a group as measured and saved, and show `text` with the progress."""
        self._done += 1
        if self._forecast:
            self._forecast.group_done()
        self._bar.update(self._task, advance=1, left=self._left())
        self._line(f"{self._counts()} {text}")

    def _counts(self) -> str:
        return _joined(f"{self._done} of {self._of}", self._left()) + ":"

    def _left(self) -> str:
        return self._forecast.words() if self._forecast else ""

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        line = f"[{self._stem}] {text}"
        if self._log:
            self._log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
        if not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))
