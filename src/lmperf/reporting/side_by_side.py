"""Tables with one line a cell and one column for each thing that is known of it.

side_by_side("forward, bf16", frame, ["seq_len", "d_head"], [
    Beside("PyTorch (ms)", kernel_times(base.rows(frame))),
    Beside("Triton (ms)", kernel_times(ours.rows(frame))),
    Beside("Triton over PyTorch", speedup_cells(evidence, stem, ours, base)),
])
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pandas as pd

from lmperf.names import axis_words, value_words
from lmperf.reporting.evidence import in_reading_order
from lmperf.reporting.numbers import EMPTY
from lmperf.reporting.tables import Lines, shared_axes


@dataclass(frozen=True)
class Beside:
    """One column: its header, and cells whose index are rows of the benchmark's frame."""

    header: str
    cells: pd.Series


def side_by_side(
    caption: str,
    frame: pd.DataFrame,
    cell: Sequence[str],
    columns: Sequence[Beside],
    note: str = "",
) -> Lines | None:
    """One line for each cell of ``frame``; None where no column has anything to show.

    Args:
        caption: what the table shows; axes with a single value are added to it.
        frame: rows whose cells make the lines; cells of a column outside it are left out.
        cell: the axes of a line, in the order of the columns; text columns are sorted by name.
        columns: what stands beside them. One whose cells are all dashes is left out.
        note: how to read the cells.
    """
    frame = in_reading_order(frame, first=list(cell))
    constant, names = shared_axes(frame, cell)
    line_of = dict(zip(frame.index, _lines(frame, names), strict=True))
    lines = list(dict.fromkeys(line_of.values()))
    found = [_by_line(column.cells, line_of) for column in columns]
    if not any(found):
        return None
    values = zip(*lines, strict=True)
    table = {
        axis_words(name): [value_words(name, value, cell) for value in column]
        for name, column in zip(names, values, strict=True)
    }
    for column, cells in zip(columns, found, strict=True):
        if cells:
            table[column.header] = [cells.get(line, EMPTY) for line in lines]
    return Lines(caption + constant, pd.DataFrame(table, dtype=object), note)


def _lines(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple]:
    """The line of each row: its values of these columns, a dash where it has none."""
    columns = (frame[name].astype(object).where(frame[name].notna(), EMPTY) for name in names)
    return list(zip(*columns, strict=True))


def _by_line(cells: pd.Series, line_of: dict[Hashable, tuple]) -> dict[tuple, str]:
    """What stands in each line, of several cells the last; what is a dash is left out."""
    known = ((line_of[row], words) for row, words in cells.items() if row in line_of)
    return {line: words for line, words in known if words != EMPTY}


def each(*tables: Lines | None) -> list[Lines]:
    """Those of the tables that have something to show."""
    return [table for table in tables if table is not None]
