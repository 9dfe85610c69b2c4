"""Tables as lines x columns over judged rows.

`Layout` makes a table for each combination of values of the axes that split it. A column has a cell
for each of its rows of evidence; rows of one line stand side by side. Axes that all lines share go
to the caption, columns in which nothing ran go, and a note says how the cells of its columns are to
be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lmperf.names import IMPLEMENTATIONS, axis_words, value_words
from lmperf.reporting.cells import NO_ROW, Cell, Table, TableColumn
from lmperf.reporting.columns import Quantity
from lmperf.reporting.frames import parts, sorted_for_reading
from lmperf.reporting.rows import Rows
from lmperf.reporting.words import EMPTY, absent, as_text, axis_value


@dataclass(frozen=True)
class Layout:
    """How rows become tables, one for each combination of values of `split`.

    Rows of evidence are shown in reading order, other lines as they are given.

    Attributes:
        lines: the axes of a line.
        what: the beginning of the captions.
        words: value -> words, where tables use others than `lmperf.names`.
        empty: the words of a cell without a row.
        heads: axis -> its header, where the table uses another than `lmperf.names`.
    """

    lines: Sequence[str]
    columns: Sequence[Quantity]
    split: Sequence[str] = ()
    what: str = ""
    note: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    empty: str = EMPTY
    heads: Mapping[str, str] = field(default_factory=dict)

    def tables(self, rows: Rows) -> list[Table]:
        """The tables of these rows; none in which nothing ran."""
        every = parts(rows.frame, *self.split, ordered=bool(rows.stem)) if len(rows) else ()
        tables = [self._table(rows, part) for _, part in every]
        return [table for table in tables if table]

    def _table(self, rows: Rows, part: pd.DataFrame) -> Table | None:
        """The table of the rows that share the values of `split`; None if nothing ran."""
        axes = [name for name in self.lines if name not in self.split]
        part = sorted_for_reading(part, axes) if rows.stem else part
        varying = [n for n in axes if part[n].nunique(dropna=False) > 1] or axes[:1]
        lines = list(part[varying].itertuples(index=False, name=None))
        line_of = dict(zip(part.index, lines, strict=True))
        nothing = Cell(self.empty, state=NO_ROW)
        columns = [quantity.column(rows, part, line_of, nothing) for quantity in self.columns]
        if not any(columns):
            return None
        of_lines = dict(zip(varying, zip(*dict.fromkeys(lines), strict=True), strict=True))
        heads = [self._head(name, values, part) for name, values in of_lines.items()]
        shared = {name: part[name].iloc[0] for name in axes if name not in varying}
        shared = {name: value for name, value in shared.items() if not absent(value)}
        named = {name: part[name].iloc[0] for name in self.split} | shared
        words = [
            self.words.get(value) or axis_value(name, value, part.columns)
            for name, value in named.items()
        ]
        caption = ", ".join(filter(None, (self.what, *words)))
        # The name of an implementation that someone brought stays as its author writes it.
        first, value = next(iter(named.items()), ("", None))
        if self.what or first != "implementation" or value in IMPLEMENTATIONS:
            caption = caption[:1].upper() + caption[1:]
        notes = [
            quantity.note
            for quantity, column in zip(self.columns, columns, strict=True)
            if column and any(cell.value is not None for cell in column.cells)
        ]
        note = " ".join(filter(None, dict.fromkeys([self.note, *notes])))
        return Table(caption, (*heads, *filter(None, columns)), note, shared)

    def _head(self, name: str, values: Iterable, part: pd.DataFrame) -> TableColumn:
        """The column of an axis."""
        cells = tuple(_text(name, value, self.words, part.columns) for value in values)
        return TableColumn(name, self.heads.get(name, axis_words(name)), cells, is_axis=True)


def _text(name: str, value, words: Mapping[str, str], axes: Collection[str]) -> Cell:
    if absent(value):
        return Cell(EMPTY, state=NO_ROW)
    if isinstance(value, bool | np.bool_):
        return Cell(("no", "yes")[int(value)], bool(value))
    return Cell(words.get(value) or as_text(value_words(name, value, axes)), value)
