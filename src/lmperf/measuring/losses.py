"""Which losses of workers are held against a case, and what its row then says.

A worker that dies may have been ended from outside, or by what a neighbour did. So a death takes no
row at first: the case goes on in a worker of its own, and a crash is what repeats there.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from lmperf.measuring.process import Lost

# So many workers may be lost on one group before it is given up; not counted are deaths that are
# held against nobody.
_MOST_LOST = 40
_AGAIN = ", twice, the second time in a process of its own"


class LostTooOften(Exception):
    """No row can be had: the message says of what, and how many workers it took."""


class Losses:
    """The losses of one group, by place and phase (None: of no phase in particular)."""

    def __init__(self) -> None:
        self._died: set[tuple[Hashable, str | None]] = set()
        self._crashed: set[Hashable] = set()
        self._count = 0

    def row(self, place: Hashable, phase: str | None, lost: Lost, name: str) -> dict | None:
        """The row that a loss takes, or None: the first death there, of what never crashed.

        Raises:
            LostTooOften: says of which case, by its `name`.
        """
        row: dict[str, Any] = lost.row
        if lost.died:
            again = (place, phase) in self._died
            if not again and place not in self._crashed:
                self._died.add((place, phase))
                return None
            self._crashed.add(place)
            row = {**row, "reason": row["reason"] + (_AGAIN if again else "")}
        self._count += 1
        if self._count > _MOST_LOST:
            raise LostTooOften(f"{name}: {_MOST_LOST} workers were lost on this group")
        return row
