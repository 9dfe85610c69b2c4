"""What was not clean when a row was taken: the signs of a table, and the counts of the write-up.

A sign stands behind every time, rate or speed-up of a marked row, once in a line; what it means,
and how many cells have it, stands below the table. A speed-up has the signs of both its rows.
A benchmark that was measured again in part has a sign at what is stale of it, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pandas as pd

from lmperf.measuring.state import CAPPED
from lmperf.names import MARKS, in_order, mark_words
from lmperf.reporting.numbers import counted
from lmperf.results import SIGNS, STALE, Cell

# Mark that has a sign -> what it means.
MEANINGS = {
    **{name: MARKS[name].meaning for name in SIGNS if name in MARKS},
    STALE: "stale: code or environment has changed since",
}


def marks_of(frame: pd.DataFrame) -> pd.Series:
    """The names of each row's marks, in order: a tuple, empty for a row that is clean.

    Rows of evidence without marks may hold why the device was slowed down: then that is one.
    """
    columns = (frame.get(name, [None] * len(frame)) for name in ("marks", "throttle", "reference"))
    found = [_of_row(*row) for row in zip(*columns, strict=True)]
    return pd.Series(found, frame.index, dtype=object)


def names_of(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """What the cells of each row are marked with: its marks, and ``stale`` where it is."""
    stale = frame.get("stale", [False] * len(frame))
    found = zip(marks_of(frame), stale, strict=True)
    return [(*names, STALE) if old else names for names, old in found]


def both(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    """The marks of a speed-up of two rows."""
    names = {*one, *other}
    return tuple([*in_order("marks", names - {STALE}), *([STALE] if STALE in names else [])])


def legend(cells: Iterable[Cell]) -> str:
    """What the signs of cells mean, and how many cells have each; empty where none has."""
    marked = [cell.marks for cell in cells if cell.marks]
    counts = {name: sum(name in marks for marks in marked) for name in SIGNS}
    said = [f"{SIGNS[m]} {MEANINGS[m]} ({counted(n, 'cell')})" for m, n in counts.items() if n]
    return f"{'; '.join(said)}." if said else ""


def counts(frames: Iterable[pd.DataFrame]) -> dict[str, int]:
    """How many rows have each mark, in the order of marks; those that none has are left out."""
    names = [name for frame in frames for row in marks_of(frame) for name in row]
    return {name: names.count(name) for name in in_order("marks", names)}


def counted_words(found: dict[str, int]) -> str:
    """``96 rows capped, 2 host-bound``, of the marks that were counted; empty for none."""
    said = [f"{number:,} {mark_words(name)}" for name, number in found.items()]
    first = [f"{counted(number, 'row')} {mark_words(name)}" for name, number in found.items()]
    return ", ".join(first[:1] + said[1:])


def _of_row(marks, throttle, reference) -> tuple[str, ...]:
    if isinstance(marks, str):
        return _names(marks)
    # The method that has marks is the one that times a reference cell: such a row is clean.
    known = reference is not None and reference == reference
    return ("capped",) if not known and _is_capped(throttle) else ()


@cache
def _names(marks: str) -> tuple[str, ...]:
    return tuple(in_order("marks", filter(None, marks.split(";"))))


def _is_capped(throttle) -> bool:
    """Whether reasons, as they are written (hexadecimal), hold one that is power or heat."""
    return isinstance(throttle, str) and bool(int(throttle, 16) & CAPPED)
