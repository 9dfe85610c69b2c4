"""Why a cell of a table has no row of evidence: not configured, or configured but not measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.results import AXIS, NO_ROW, NOT_CONFIGURED, NOT_MEASURED, Cell, Column, Table


def with_reasons(table: Table, evidence: MachineEvidence) -> Table:
    """Set the state of cells without a row of evidence to NOT_CONFIGURED or NOT_MEASURED.

    A cell without a row belongs to the implementation and phase of the other cells of its column,
    and to the axis values of its line. It keeps the state NO_ROW if these are unknown, or if the
    evidence has the row and the table leaves it out.
    """
    lines = [column for column in table.columns if column.role == AXIS]
    values = list(zip(*(map(_text_of, column.cells) for column in lines), strict=True))
    columns = (
        _with_reasons(c, [line.name for line in lines], values, evidence) for c in table.columns
    )
    return replace(table, columns=tuple(columns))


def _with_reasons(
    column: Column, names: Sequence[str], lines: Sequence[tuple], evidence: MachineEvidence
) -> Column:
    keys = {cell.row for cell in column.cells if cell.row}
    if column.role == AXIS or not keys or all(cell.state != NO_ROW for cell in column.cells):
        return column
    stem, rows = _rows_with(keys, evidence)
    if stem is None or not set(names) <= {*axes(rows), "implementation"}:
        return column
    others = [n for n in (*axes(rows), "implementation", "phase") if n not in names]
    alike = {name: {_text(value) for value in rows[name].unique()} for name in others}
    known = _lines_of(evidence.frame(stem), names, alike)
    required = _lines_of(evidence.lacking.get(stem), names, alike)

    def told(cell: Cell, line: tuple) -> Cell:
        if cell.state != NO_ROW or line in known:
            return cell
        return replace(cell, state=NOT_MEASURED if line in required else NOT_CONFIGURED)

    return replace(column, cells=tuple(map(told, column.cells, lines)))


def _rows_with(keys: Iterable[str], evidence: MachineEvidence) -> tuple[str | None, pd.DataFrame]:
    """The one benchmark that has rows with these keys, and the rows; None if none or several."""
    frames = {stem: frame for stem, frame in evidence.present().items() if "key" in frame}
    found = {stem: frame[frame["key"].isin(list(keys))] for stem, frame in frames.items()}
    found = {stem: rows for stem, rows in found.items() if len(rows)}
    return next(iter(found.items())) if len(found) == 1 else (None, pd.DataFrame())


def _lines_of(
    rows: pd.DataFrame | None, names: Sequence[str], alike: Mapping[str, set[str]]
) -> set[tuple]:
    """The distinct values, as text, of the columns ``names`` in the rows that match ``alike``.

    alike: column -> the values (as text) that a matching row may have in it.
    """
    if rows is None or not {*names, *alike} <= set(rows.columns):
        return set()
    texts = rows[[*names, *alike]].astype(object).map(_text)
    for name, values in alike.items():
        texts = texts[texts[name].isin(values)]
    return set(texts[list(names)].itertuples(index=False, name=None))


def _text_of(cell: Cell) -> str:
    return _text(cell.value)


def _text(value: Any) -> str:
    """An axis value as text, the same for 128 and 128.0; empty for None and NaN."""
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
