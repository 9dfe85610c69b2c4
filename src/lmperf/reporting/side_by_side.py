"""Tables with one line a cell and one column for each thing that is known of it.

side_by_side("forward, bf16", frame, ["seq_len", "d_head"], [
    Beside("PyTorch (ms)", kernel_times(base.rows(frame))),
    Beside("Triton (ms)", kernel_times(ours.rows(frame))),
    Beside("Triton over PyTorch", speedup_cells(evidence, stem, ours, base)),
])
"""

from __future__ import annotations

from collections.abc import Sequence
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
    constant, lines = shared_axes(frame, cell)
    table = frame[lines].drop_duplicates()
    for column in columns:
        cells = column.cells[column.cells.index.isin(frame.index)]
        if cells.empty or (cells == EMPTY).all():
            continue
        own = frame.loc[cells.index, lines].assign(**{column.header: cells})
        own = own[own[column.header] != EMPTY].drop_duplicates(lines, keep="last")
        table = table.merge(own, on=lines, how="left")
    if len(table.columns) == len(lines):
        return None
    table = table.astype(object).where(table.notna(), EMPTY)
    words = {name: [value_words(name, value, cell) for value in table[name]] for name in lines}
    return Lines(caption + constant, table.assign(**words).rename(columns=axis_words), note)


def each(*tables: Lines | None) -> list[Lines]:
    """Those of the tables that have something to show."""
    return [table for table in tables if table is not None]
