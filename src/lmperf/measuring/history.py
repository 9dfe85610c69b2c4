"""Counts lost workers of a group, and timeouts and disturbed phases of a run.

A worker process may have been killed from outside, or broken by a case that it ran before. So a
case's first crash is not recorded: the case is retried alone in a new worker. If it crashes there
again, its row records the crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from lmperf.measuring.process import WorkerLost
from lmperf.measuring.readings import References

# Number of timeouts after which an implementation is skipped for the rest of the run.
MOST_TIMEOUTS = 2
# A group that loses more workers than this is given up. Crashes that are retried do not count.
_MOST_LOST = 40
# Number of phases in a row that stayed disturbed (by other load, drift or a slow host) after which
# phases are timed only once, until one is undisturbed.
_MOST_DISTURBED = 2
_TWICE = ", twice, the second time in a process of its own"


class TooManyWorkersLost(Exception):
    """Raised if a group is given up; the message names the case and the number of lost workers."""


class GroupLosses:
    """Counts the workers that a group lost, and decides whether a case is retried.

    Crashes are told apart by case and phase; None: the case crashed outside a phase.
    """

    def __init__(self) -> None:
        self._died: set[tuple[Hashable, str | None]] = set()
        self._crashed: set[Hashable] = set()
        self._count = 0

    def row(
        self, case: Hashable, phase: str | None, lost: WorkerLost, name: str
    ) -> dict[str, Any] | None:
        """Return the row that records a lost worker; None if the case is to be retried alone.

        A case is retried after its first crash, never after a timeout or lack of memory.

        Args:
            case, phase: the case and phase that the worker was running.
            lost: the error that reported the loss.
            name: the case in words, for the error message.

        Raises:
            TooManyWorkersLost: the group has lost too many workers and is given up.
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
    """Timeouts, disturbed phases and readings of the references, over all groups of one run.

    Attributes:
        timeouts: number of timeouts by (worker name, implementation).
        references: the usual times of the device, and the best times of the host.
    """

    def __init__(self, references: References) -> None:
        self.timeouts: Counter[tuple[str, str]] = Counter()
        self.references = references
        self._disturbed = 0

    @property
    def may_repeat(self) -> bool:
        """Whether a phase that was timed on a disturbed machine may be timed again."""
        return self._disturbed < _MOST_DISTURBED

    def timed(self, disturbed: bool) -> None:
        """Record that a phase has been timed, and whether its last times are disturbed."""
        self._disturbed = self._disturbed + 1 if disturbed else 0
