"""Marks of rows: their signs in tables, the legend below a table, and counts for the write-up.

A mark says why a timing may be unreliable (`names.MARKS`). Every time, rate or speed-up of a marked
row shows the sign of the mark; the legend explains it and counts the cells that have it. A speed-up
has the marks of both its rows. Stale rows are marked too.

A row is *disturbed* if something else than its code decided on its time (``DISTURBED``): its
comparisons are unresolved. It is *doubtful* if it is disturbed, if it contradicts another cell, or
if power or heat held the device back during single calls: no finding rests on it. A step of a train
loop at the power limit is not doubtful, since that is what training gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache

import pandas as pd

from lmperf.benchmarks import load, stems
from lmperf.measuring.state import CAPPED
from lmperf.names import MARKS, UNSETTLED, in_order, mark_words
from lmperf.reporting.numbers import Count, counted, listed
from lmperf.results import EMPTY, NOT_DECIDED, OTHER_GPU, OTHER_RUN, SIGNS, STALE, Cell, Table
from lmperf.statistics import UNRESOLVED

DISTURBED = UNSETTLED | {"host_bound"}
CONTRADICTS = "contradicts"
# Mark with a sign -> its meaning.
MEANINGS = {
    **{name: MARKS[name].meaning for name in SIGNS if name in MARKS},
    STALE: "stale: code or environment has changed since",
}


def marks_of(frame: pd.DataFrame) -> pd.Series:
    """The names of the marks of each row, in the order of ``MARKS``; empty for a clean row.

    Rows measured before marks existed are marked ``capped`` if they record a throttle reason.
    """
    columns = (frame.get(name, [None] * len(frame)) for name in ("marks", "throttle", "reference"))
    found = [_of_row(*row) for row in zip(*columns, strict=True)]
    return pd.Series(found, frame.index, dtype=object)


def throttled(frame: pd.DataFrame) -> pd.Series:
    """Whether power or heat held the device back in each row, which is marked or not."""
    reasons = frame.get("throttle", pd.Series(None, frame.index, object))
    return reasons.map(_is_capped).astype(bool)


def with_mark(row: Mapping[str, str], mark: str) -> dict[str, str]:
    """The row of evidence with one more mark."""
    return {**row, "marks": ";".join(filter(None, [row.get("marks"), mark]))}


def disturbed(frame: pd.DataFrame) -> pd.Series:
    """Whether each row has a mark of ``DISTURBED``: a comparison with it is unresolved."""
    return _has_any(frame, DISTURBED)


def doubtful(frame: pd.DataFrame, stem: str = "") -> pd.Series:
    """Whether each row's time may not hold, so that no finding may rest on it.

    stem: the benchmark, if steps of its rows may be capped (see the module).
    """
    not_for_findings = {CONTRADICTS} if times_steps(stem) else {CONTRADICTS, "capped"}
    return _has_any(frame, DISTURBED | not_for_findings)


def _has_any(frame: pd.DataFrame, marks: Collection[str]) -> pd.Series:
    return marks_of(frame).map(lambda names: not {*marks}.isdisjoint(names)).astype(bool)


def times_steps(stem: str) -> bool:
    """Whether a benchmark times steps of a model, not kernels."""
    return stem in stems() and getattr(load(stem), "clock", None) == "step"


def names_of(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """The names of the marks of each row, followed by ``stale`` if the row is stale."""
    stale = frame.get("stale", [False] * len(frame))
    found = zip(marks_of(frame), stale, strict=True)
    return [(*names, STALE) if old else names for names, old in found]


def with_stale(cells: pd.Series, rows: pd.DataFrame) -> pd.Series:
    """The cells, with the mark of a stale row.

    For sums and other numbers of several rows, which ``of_stale_rows`` does not know.
    """
    if "stale" not in rows:
        return cells
    return _replaced(cells, rows["stale"].eq(True).map({True: (STALE,), False: ()}))


def with_marks(cells: pd.Series, rows: pd.DataFrame) -> pd.Series:
    """The cells, with all marks of their rows: for rates, which follow from times."""
    return _replaced(cells, pd.Series(names_of(rows), rows.index, dtype=object))


def _replaced(cells: pd.Series, names: pd.Series) -> pd.Series:
    made = [
        cell if cell.value is None else replace(cell, marks=marks)
        for cell, marks in zip(cells, names.reindex(cells.index), strict=True)
    ]
    return pd.Series(made, cells.index, dtype=object)


def of_stale_rows(table: Table, keys: Collection[str]) -> Table:
    """The table with the mark of a stale row at each cell whose row has one of these keys."""

    def marked(cell: Cell) -> Cell:
        is_stale = cell.row in keys and cell.words != EMPTY and STALE not in cell.marks
        return replace(cell, marks=(*cell.marks, STALE)) if is_stale else cell

    columns = [replace(each, cells=tuple(map(marked, each.cells))) for each in table.columns]
    return replace(table, columns=tuple(columns))


def both(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    """The marks of a speed-up: every mark that at least one of its two rows has."""
    names = {*one, *other}
    return tuple([*in_order("marks", names - {STALE}), *([STALE] if STALE in names else [])])


_STATES = {
    NOT_DECIDED: "Not decided: a profiled rank was idle for long, the share varied, or the"
    " profiler changed the step (D5).",
    OTHER_GPU: "Another GPU: not compared, since GPUs of one kind reach different clocks.",
    OTHER_RUN: "Another run: not compared, since the GPU of a step is not recorded.",
}


def legend(cells: Iterable[Cell]) -> str:
    """The meaning of each sign in the cells and how many cells have it; empty without signs.

    Says as well which signs make a comparison unresolved or keep it out of findings, if there is
    one, and what the words of a cell without a value mean.
    """
    cells = [*cells]
    states = {cell.state for cell in cells}
    explained = [words for state, words in _STATES.items() if state in states]
    cells = [cell for cell in cells if cell.marks]
    marked = [cell.marks for cell in cells]
    counts = {name: sum(name in marks for marks in marked) for name in SIGNS}
    said = [f"{SIGNS[m]} {MEANINGS[m]} ({counted(n, 'cell')})" for m, n in counts.items() if n]
    compared = {name for cell in cells if cell.verdict for name in cell.marks}
    signs = [SIGNS[name] for name in SIGNS if name in DISTURBED & compared]
    why = (
        f" A comparison is unresolved if one of its times has {listed(signs, 'or')}."
        if signs
        else ""
    )
    if CONTRADICTS in compared:
        why += f" Marked {SIGNS[CONTRADICTS]}: no finding rests on it."
    signs = f"{'. '.join(said)}.{why}" if said else ""
    return " ".join(filter(None, (*explained, signs)))


def unresolved(tables: Iterable[Table]) -> Count:
    """How many comparisons in the tables are unresolved, of how many.

    Each pair of rows counts once, also if several tables compare it; it is unresolved if one of
    them says so.
    """
    found: dict[tuple, bool] = {}
    for column in (column for table in tables for column in table.columns):
        for cell in column.cells:
            if cell.verdict:
                known = cell.row and cell.base
                pair = (cell.row, cell.base) if known else (column.name, cell.row or id(cell))
                found[pair] = found.get(pair, False) or cell.verdict == UNRESOLVED
    return Count(sum(found.values()), len(found))


def counts(frames: Iterable[pd.DataFrame]) -> dict[str, int]:
    """Mark -> number of rows that have it, in the order of marks; unused marks are left out."""
    names = [name for frame in frames for row in marks_of(frame) for name in row]
    return {name: names.count(name) for name in in_order("marks", names)}


def counted_words(found: dict[str, int]) -> str:
    """The counts of marks in words: ``96 rows capped, 2 host-bound``; empty for none."""
    said = [f"{number:,} {mark_words(name)}" for name, number in found.items()]
    first = [f"{counted(number, 'row')} {mark_words(name)}" for name, number in found.items()]
    return ", ".join(first[:1] + said[1:])


def _of_row(marks, throttle, reference) -> tuple[str, ...]:
    if isinstance(marks, str):
        return _names(marks)
    # The method that recorded a reference time also recorded marks: a row without marks is clean.
    known = reference is not None and reference == reference
    return ("capped",) if not known and _is_capped(throttle) else ()


@cache
def _names(marks: str) -> tuple[str, ...]:
    return tuple(in_order("marks", filter(None, marks.split(";"))))


def _is_capped(throttle) -> bool:
    """Whether throttle reasons (a hexadecimal bit mask) include power or temperature."""
    return isinstance(throttle, str) and bool(int(throttle, 16) & CAPPED)
