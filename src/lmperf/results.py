"""Results as data: cells, columns, tables and statements. Every format is made from them.

A cell holds its number as well as the words that a page shows, so that no format or comparison has
to parse words. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lmperf.names import MARKS

# The words of a cell without a value.
EMPTY = "–"
# Why a cell has no value, in addition to the statuses of a row (`lmperf.names.STATUSES`).
IMPOSSIBLE = "impossible"  # faster than the machine can be
WITHHELD = "withheld"  # a row of the pair failed its gate
NOT_IN_TURN = "not_in_turn"  # both rows were measured, but not in the same rounds
OTHER_GPU = "other_gpu"  # both rows were measured, but on different GPUs
OTHER_RUN = "other_run"  # both rows were measured, but not in one run, and a GPU is not recorded
NOT_DECIDED = "not_decided"  # measured, but it may differ in the step that the cell is about
NO_BASELINE = "no_baseline"  # no row to compare with
NO_TIME = "no_time"  # one of the rows of the pair has no time
NOT_RECORDED = "not_recorded"  # the row exists but lacks this number
NO_ROW = "no_row"  # no row of evidence; whether one is configured is not known
NOT_CONFIGURED = "not_configured"  # no row of evidence, and the configuration asks for none
NOT_MEASURED = "not_measured"  # configured, and not measured yet

STALE = "stale"
# Mark -> the sign appended to the words of a cell.
SIGNS = {**{name: mark.sign for name, mark in MARKS.items() if mark.sign}, STALE: "ˢ"}

# Roles of a column.
AXIS, TIME, DERIVED, OBSERVED = "axis", "time", "derived", "observed"
ROLES = (AXIS, TIME, DERIVED, OBSERVED)
LOWER, HIGHER = "lower", "higher"


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table.

    Attributes:
        words: the text that a page shows, without the signs of its marks.
        value: the unrounded number in the unit of the column; text in a column of text; None if
            there is none.
        low: lower end of the confidence interval of ``value``.
        high: upper end of this interval.
        n: number of calls or samples that ``value`` is an estimate from.
        std: standard deviation of a single call, in the unit of the column.
        second: a second number in ``words``; ``Column.second`` names its quantity.
        verdict: result of a comparison: faster, slower, same or unresolved.
        state: why there is no value: a status of a row, or a constant of this module.
        marks: names of the marks of the row (`lmperf.names.MARKS`), and ``stale`` for a stale row.
        row: key of the row of evidence that the cell shows.
        base: key of the row that a speed-up of ``row`` is over.
    """

    words: str
    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    std: float | None = None
    second: float | None = None
    verdict: str | None = None
    state: str | None = None
    marks: tuple[str, ...] = ()
    row: str | None = None
    base: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the words are the unrounded number or a truth value."""
        return isinstance(self.value, int | float) and self.words == plain_words(self.value)

    def __str__(self) -> str:
        """The words followed by the signs of the marks."""
        return self.words + "".join(SIGNS.get(mark, "") for mark in self.marks)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: stable, with dots, as ``forward.triton.over.sdpa_cudnn``; independent of the header.
        header: the words that a page shows, with the unit.
        cells: one for each line of the table.
        unit: of ``Cell.value``; empty for a ratio, a fraction, a count or text.
        format: name of the function of `lmperf.reporting.numbers` that rounds the value; empty
            if the words are the value itself.
        better: LOWER or HIGHER if that direction is better, else empty.
        role: AXIS, TIME, DERIVED (from times: rates, speed-ups) or OBSERVED (all others).
        second: what ``Cell.second`` is; empty if the cells have none.
        align: ``left`` or ``right``; None: columns of numbers are right-aligned.
    """

    name: str
    header: str
    cells: tuple[Cell, ...] = ()
    unit: str = ""
    format: str = ""
    better: str = ""
    role: str = OBSERVED
    second: str = ""
    align: str | None = None


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        caption: what the table shows, with the axis values that all lines share.
        columns: all of the same length.
        notes: how to read the cells; may be empty.
        axes: axis -> value, for the axes whose value all lines share.
        id: number in the report (``F2``), which several tables may share; may be empty.
        folds: whether a page may fold the table when it is long.
    """

    caption: str
    columns: tuple[Column, ...]
    notes: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    folds: bool = True

    @property
    def length(self) -> int:
        """Number of lines."""
        return len(self.columns[0].cells) if self.columns else 0

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, column by column."""
        return (cell for column in self.columns for cell in column.cells)

    @property
    def frame(self) -> pd.DataFrame:
        """The table as a data frame with headers as columns; rounded numbers are text."""
        columns = {
            column.header: [
                cell.value if not column.format and cell.is_plain else str(cell)
                for cell in column.cells
            ]
            for column in self.columns
        }
        return pd.DataFrame(columns, dtype=object)

    def last(self, lines: int) -> Table:
        """A copy of the table that has only the last ``lines`` lines."""
        columns = (replace(column, cells=column.cells[-lines:]) for column in self.columns)
        return replace(self, columns=tuple(columns))

    def without(self, *names: str) -> Table:
        """A copy of the table without the columns of these names."""
        return replace(self, columns=tuple(c for c in self.columns if c.name not in names))


@dataclass(frozen=True)
class Statement:
    """A sentence of a report with the values that it was made from.

    Attributes:
        name: the name of the finding; unique in a report.
        answer: the name of the answer that the data gave.
        sentence: in Markdown.
        place: where a report prints it: a constant of `lmperf.reporting.findings`.
        values: name -> value from which the sentence was made.
    """

    name: str
    answer: str
    sentence: str
    place: str
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.sentence


def plain_words(value: object) -> str:
    """A value as text: numbers to twelve significant digits, truth values as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def joined(*parts: object) -> str:
    """The name of a column, joined from its nonempty parts by dots: ``forward.triton.host``."""
    return ".".join(filter(None, map(str, parts)))
