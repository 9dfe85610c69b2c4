"""What earlier attempts have shown: workers lost by a group, timeouts and repeats of a run.

A worker may have been killed from outside, or by another case that it ran before. So the first time
it dies, no row records a crash: the case is retried in a worker of its own, and only a crash that
repeats there counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from lmperf.measuring.process import WorkerLost
from lmperf.measuring.state import drift

# An implementation with so many timeouts is skipped for the rest of the run.
MOST_TIMEOUTS = 2
# A group that loses so many workers is given up. First deaths, which are retried, do not count.
_MOST_LOST = 40
# After so many useless repeats in a row, nothing is repeated any more: the machine stays disturbed.
_MOST_USELESS_REPEATS = 2
_TWICE = ", twice, the second time in a process of its own"


class TooManyWorkersLost(Exception):
    """A group was given up; the message names the case and the number of lost workers."""


class GroupLosses:
    """The workers that one group has lost, by case and phase (None: in no particular phase)."""

    def __init__(self) -> None:
        self._died: set[tuple[Hashable, str | None]] = set()
        self._crashed: set[Hashable] = set()
        self._count = 0

    def row(
        self, case: Hashable, phase: str | None, lost: WorkerLost, name: str
    ) -> dict[str, Any] | None:
        """The row that records a lost worker; None if the case is to be retried alone.

        None on a case's first crash. `name` is how the case is named in an error.

        Raises:
            TooManyWorkersLost: the group is to be given up.
        """
        row = lost.row
        if lost.died:
            repeated = (case, phase) in self._died
            if not repeated and case not in self._crashed:
                self._died.add((case, phase))
                return None
            self._crashed.add(case)
            row = {**row, "reason": row["reason"] + (_TWICE if repeated else "")}
        self._count += 1
        if self._count > _MOST_LOST:
            raise TooManyWorkersLost(f"{name}: {_MOST_LOST} workers were lost on this group")
        return row


class RunHistory:
    """What the groups of one run share.

    Attributes:
        timeouts: number of timeouts by (worker name, implementation).
    """

    def __init__(self) -> None:
        self.timeouts: Counter[tuple[str, str]] = Counter()
        self._first_reference: tuple[float, float] | None = None
        self._useless_repeats = 0

    def drift(self, reference: tuple[float, float]) -> float:
        """Time of the reference cell over its time at the start of the run; 1 on the first call."""
        self._first_reference = self._first_reference or reference
        return drift(reference, self._first_reference)

    @property
    def may_repeat(self) -> bool:
        """Whether it is worth repeating timings taken on a disturbed machine."""
        return self._useless_repeats < _MOST_USELESS_REPEATS

    def repeated(self, disturbed: bool) -> None:
        """Count a repeat; `disturbed`: the machine was disturbed again."""
        self._useless_repeats = self._useless_repeats + 1 if disturbed else 0
