"""Why a cell of a table has no row of evidence: not configured, or configured but not measured.

``missing_lines`` says in a few lines which rows are configured but not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lmperf.names import axis_words, in_order, value_words
from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.reporting.numbers import counted, listed, plural
from lmperf.results import AXIS, NO_ROW, NOT_CONFIGURED, NOT_MEASURED, Cell, Column, Table

# A list of missing rows has at most this many lines; more values of an axis are summarised.
MOST_LINES, MOST_VALUES = 12, 4
# Columns whose values need no name before them.
_PLAIN = ("dtype", "implementation", "phase", "operation", "load")


def missing_lines(rows: pd.DataFrame) -> list[str]:
    """At most MOST_LINES lines that say which rows are missing, those of most rows first.

    A line stands for all combinations of its values: "8 rows: size small and large; context
    512; bf16 autocast; eager; forward, backward, forward + backward and train step".

    rows: axes, implementation and phase of the missing rows.
    """
    names = [*axes(rows), "implementation", "phase"]
    blocks = sorted(_blocks(rows[names]), key=_size, reverse=True)
    shown = blocks if len(blocks) <= MOST_LINES else blocks[: MOST_LINES - 1]
    lines = [f"{counted(_size(block), 'row')}: {_words_of(block, names)}" for block in shown]
    rest = sum(map(_size, blocks[len(shown) :]))
    return [*lines, counted(rest, "further row")] if rest else lines


def _blocks(rows: pd.DataFrame) -> list[tuple[frozenset, ...]]:
    """Blocks that cover the rows: a set of values for each column, all combinations of which exist.

    Each row is a block at first. Blocks that differ in one column only become one; the last columns
    first, so that phases and implementations of a cell are not torn apart.
    """
    values = rows.astype(object).where(rows.notna(), None)
    blocks = [tuple(frozenset([v]) for v in row) for row in values.itertuples(index=False)]
    for place in reversed(range(len(rows.columns))):
        merged: dict[tuple, frozenset] = {}
        for block in blocks:
            others = (*block[:place], *block[place + 1 :])
            merged[others] = merged.get(others, frozenset()) | block[place]
        blocks = [(*others[:place], of, *others[place:]) for others, of in merged.items()]
    return blocks


def _size(block: Sequence[frozenset]) -> int:
    return math.prod(map(len, block))


def _words_of(block: Sequence[frozenset], names: Sequence[str]) -> str:
    words = (_axis_values(*of, names) for of in zip(names, block, strict=True))
    return "; ".join(filter(None, words))


def _axis_values(name: str, values: frozenset, names: Sequence[str]) -> str:
    """The values of a column: ``d_head 16 and 32``, ``length 256 to 65536``, ``5 implementations``.

    Empty for an axis without a value.
    """
    found, word = in_order(name, values), axis_words(name)
    if not found:
        return ""
    if all(isinstance(value, bool) for value in found):
        return " or ".join(word if value else f"not {word}" for value in found)
    said = [value_words(name, value, names) for value in found]
    if len(found) <= MOST_VALUES:
        return listed(said) if name in _PLAIN else f"{word} {listed(said)}"
    if all(isinstance(value, int | float) for value in found):
        return f"{word} {listed(said[:1])} to {listed(said[-1:])}"
    return f"{len(found)} {plural(word)}"


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
