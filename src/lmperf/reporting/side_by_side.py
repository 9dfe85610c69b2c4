"""Tables with a line for each cell (values of the axes) and a column for each quantity.

side_by_side("forward, bf16", frame, ["seq_len", "d_head"], [
    time("PyTorch", kernel_times(base.rows(frame)), "forward.eager"),
    time("Triton", kernel_times(ours.rows(frame)), "forward.triton"),
    speedup("Triton over PyTorch", speedup_cells(evidence, stem, ours, base), "..."),
])
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lmperf.names import axis_words, value_words
from lmperf.reporting.evidence import in_reading_order
from lmperf.reporting.tables import as_cell, shared_axes, shared_words
from lmperf.results import (
    AXIS,
    DERIVED,
    EMPTY,
    HIGHER,
    LOWER,
    NO_ROW,
    OBSERVED,
    TIME,
    Cell,
    Column,
    Table,
)


@dataclass(frozen=True)
class Beside:
    """A column with a cell for each row of evidence, which ``side_by_side`` sorts into lines.

    cells: indexed like the rows of evidence. For the others see `lmperf.results.Column`.
    """

    header: str
    cells: pd.Series
    name: str
    unit: str = ""
    format: str = ""
    better: str = ""
    role: str = OBSERVED
    second: str = ""


def time(what: str, cells: pd.Series, name: str, unit: str = "ms", second: str = "") -> Beside:
    """A column of measured times."""
    return Beside(f"{what} ({unit})", cells, name, unit, "significant", LOWER, TIME, second)


def step_time(what: str, cells: pd.Series, name: str) -> Beside:
    """A column of step times: means, with medians as second values."""
    return time(what, cells, name, second="median")


def speedup(header: str, cells: pd.Series, name: str) -> Beside:
    """A column of speed-ups; above 1 the first implementation in the column's name is faster."""
    return Beside(header, cells, name, "", "ratio", HIGHER, DERIVED)


def rate(
    what: str, cells: pd.Series, name: str, unit: str, form: str = "significant", second: str = ""
) -> Beside:
    """A column of rates, or of shares of a rate: higher is better."""
    return Beside(f"{what} ({unit})", cells, name, unit, form, HIGHER, DERIVED, second)


def memory(what: str, cells: pd.Series, name: str, unit: str = "MiB", second: str = "") -> Beside:
    """A column of memory."""
    return Beside(f"{what} ({unit})", cells, name, unit, "significant", LOWER, OBSERVED, second)


def share(header: str, cells: pd.Series, name: str, unit: str = "", form="percent") -> Beside:
    """A column of shares or relative differences for which neither direction is better."""
    return Beside(header, cells, name, unit, form, "", DERIVED)


def text(header: str, cells: pd.Series, name: str, form: str = "") -> Beside:
    """A column of text, or of numbers without unit and direction."""
    return Beside(header, cells, name, format=form)


def side_by_side(
    caption: str,
    frame: pd.DataFrame,
    cell: Sequence[str],
    columns: Sequence[Beside],
    notes: str = "",
) -> Table | None:
    """A table with a line for each cell of ``frame``; None if every column has only dashes.

    Args:
        caption: what the table shows; axes with a single value are appended to it.
        frame: the rows that make the lines; cells of other rows are left out.
        cell: the axes of a line, in the order of their columns.
        columns: the columns after the axes. A column that has only dashes is left out.
        notes: how to read the cells.
    """
    frame = in_reading_order(frame, first=list(cell))
    constant, names = shared_axes(frame, cell)
    line_of = dict(zip(frame.index, _lines(frame, names), strict=True))
    lines = list(dict.fromkeys(line_of.values()))
    found = [_by_line(column.cells, line_of) for column in columns]
    shown = [any(one.words != EMPTY for one in cells.values()) for cells in found]
    if not any(shown):
        return None
    made = [_axis(n, v, cell) for n, v in zip(names, zip(*lines, strict=True), strict=True)]
    made += [
        _column(column, [cells.get(line, _NO_ROW) for line in lines])
        for column, cells, has_some in zip(columns, found, shown, strict=True)
        if has_some
    ]
    shared = {name: as_cell(frame[name].iloc[0]).value for name in constant}
    caption += shared_words(frame, cell, constant)
    return Table(caption, tuple(made), notes, shared)


_NO_ROW = Cell(EMPTY, state=NO_ROW)


def _axis(name: str, values: Sequence, cell: Sequence[str]) -> Column:
    cells = (as_cell(value) for value in values)
    words = (as_cell(value_words(name, value, cell)).words for value in values)
    cells = (replace(one, words=text) for one, text in zip(cells, words, strict=True))
    return Column(name, axis_words(name), tuple(cells), role=AXIS)


def _column(column: Beside, cells: Sequence[Cell]) -> Column:
    return Column(
        column.name,
        column.header,
        tuple(cells),
        column.unit,
        column.format,
        column.better,
        column.role,
        column.second,
    )


def _lines(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple]:
    """The line of each row: the values of the row in the columns ``names``, a dash if empty."""
    columns = (frame[name].astype(object).where(frame[name].notna(), EMPTY) for name in names)
    return list(zip(*columns, strict=True))


def _by_line(cells: pd.Series, line_of: dict[Hashable, tuple]) -> dict[tuple, Cell]:
    """Line -> the cell in it; if several rows share a line, the last cell that is not a dash."""
    found: dict[tuple, Cell] = {}
    for row, value in zip(cells.index, cells, strict=True):
        if row in line_of:
            cell, line = as_cell(value), line_of[row]
            if cell.words != EMPTY or line not in found:
                found[line] = cell
    return found


def each(*tables: Table | None) -> list[Table]:
    """The tables that are not None."""
    return [table for table in tables if table is not None]
