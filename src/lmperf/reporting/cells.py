"""Tables as data: every format is made from them, and none has to parse words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

EMPTY = "–"
# Why a cell has no value, in addition to the states of a row (`judging.judged`).
NO_ROW = "no_row"  # no row of evidence
NOT_RECORDED = "not_recorded"  # the row exists but lacks this number
NOT_COMPARED = "not_compared"  # both rows were measured, but not on one GPU
# Sign beside a number -> its sign and its meaning.
SIGNS = {
    "capped": ("ᶜ", "capped: power or heat held the device back"),
    "loaded": ("ˡ", "loaded: other processes took more than a tenth of this machine's processors"),
    "process": ("ᵖ", "process: in a process of its own, since it changes what cannot be put back"),
    "stale": ("ˢ", "stale: code or environment has changed since"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table.

    Attributes:
        words: the text that a page shows, without signs.
        value: the unrounded number in the unit of the column; text in a column of text; None if
            there is none.
        low, high: ends of the confidence interval of ``value``.
        n: number of calls or samples that ``value`` is an estimate from.
        second: a second number in ``words``.
        verdict: result of a comparison: faster, slower, same or unresolved.
        state: why there is no value: a state of a row, or a constant of this module.
        marks: signs beside the number, names of SIGNS.
        waits: whether the step waited for the CPU; pages print it in italic.
        row: key of the row of evidence that the cell shows.
        base: key of the row that a speed-up of ``row`` is over.
    """

    words: str
    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    second: float | None = None
    verdict: str | None = None
    state: str | None = None
    marks: tuple[str, ...] = ()
    waits: bool = False
    row: str | None = None
    base: str | None = None

    def __str__(self) -> str:
        """The words followed by their signs."""
        return self.words + "".join(SIGNS[mark][0] for mark in self.marks)


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: stable, with dots, as ``forward.triton.over.sdpa_cudnn``; independent of the header.
        header: the words that a page shows, with the unit.
        cells: one for each line of the table.
        unit: of ``Cell.value``; empty for a ratio, a fraction, a count or text.
        is_axis: whether the cells are values of an axis, not results.
    """

    name: str
    header: str
    cells: tuple[Cell, ...] = ()
    unit: str = ""
    is_axis: bool = False


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        caption: what the table shows, with the axis values that all lines share; may be empty.
        columns: all of the same length.
        notes: how to read the cells; may be empty.
        axes: axis -> value, for the axes whose value all lines share.
        id: number in the report (``F2``), which several tables may share; may be empty.
        title: heading that several tables may share; may be empty.
        folds: whether a page may fold the table when it is long.
        again: whether a command that measures one of the cells again stands below the table.
        italic: what italic cells mean; empty if the page has said so.
    """

    caption: str
    columns: tuple[TableColumn, ...]
    notes: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    title: str = ""
    folds: bool = True
    again: bool = False
    italic: str = "*Italic: the step waited for the CPU.*"

    @property
    def length(self) -> int:
        """Number of lines."""
        return len(self.columns[0].cells) if self.columns else 0

    @property
    def lines(self) -> list[tuple[Cell, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, column by column."""
        return (cell for column in self.columns for cell in column.cells)
