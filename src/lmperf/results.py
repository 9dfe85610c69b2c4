"""Results as data: cells, columns, tables and statements, from which every format is made.

A cell carries its number beside the words that a page shows, so that a format, a comparison or a
site reads the number and never parses the words. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lmperf.names import MARKS

# The words of a cell that has nothing to show.
EMPTY = "–"
# Why a cell has no value, beside the statuses of a row (`lmperf.names.STATUSES`).
IMPOSSIBLE = "impossible"  # faster than the machine can be
WITHHELD = "withheld"  # a row of the pair failed its gate
NOT_IN_TURN = "not_in_turn"  # both rows were measured, but not in the same rounds
NO_BASELINE = "no_baseline"  # no row to compare with
NO_TIME = "no_time"  # one of the rows of the pair has no time
NOT_RECORDED = "not_recorded"  # the row is there and lacks this number
NO_ROW = "no_row"  # no row of evidence; whether one is configured is not known
NOT_CONFIGURED = "not_configured"  # no row of evidence, and the configuration asks for none
NOT_MEASURED = "not_measured"  # configured, and not measured yet

STALE = "stale"
# Mark -> the sign that stands behind the words of a cell.
SIGNS = {**{name: mark.sign for name, mark in MARKS.items() if mark.sign}, STALE: "ˢ"}

# What a column holds.
AXIS, TIME, DERIVED, OBSERVED = "axis", "time", "derived", "observed"
ROLES = (AXIS, TIME, DERIVED, OBSERVED)
LOWER, HIGHER = "lower", "higher"


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table.

    Attributes:
        words: what a page shows, without the signs of its marks.
        value: the number behind the words, in the unit of the column and unrounded; text in a
            column of text; None where there is none.
        low: lower end of the confidence interval of ``value``.
        high: upper end of it.
        n: number of calls or samples that ``value`` is an estimate from.
        std: standard deviation of a single call, in the unit of the column.
        second: another number that the words hold; ``Column.second`` says which.
        verdict: of a comparison: faster, slower, same or unresolved.
        state: why there is no value: a status of a row, or a constant of this module.
        marks: names of what was not clean when the row was measured (`lmperf.names.MARKS`), and
            ``stale``.
        row: key of the row of evidence.
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

    @property
    def is_plain(self) -> bool:
        """Whether the words are a number or a truth value as it is."""
        return isinstance(self.value, int | float) and self.words == plain_words(self.value)

    def __str__(self) -> str:
        """The words, and behind them the signs of the marks."""
        return self.words + "".join(SIGNS.get(mark, "") for mark in self.marks)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: stable, with dots: ``forward.triton.over.sdpa_cudnn``; it does not change with the
            words of the header.
        header: as a page shows it, with the unit.
        cells: one for each line of the table.
        unit: of ``Cell.value``; empty for a ratio, a fraction, a count or text.
        format: name of the function of `lmperf.reporting.numbers` that rounds the value; empty
            where the words are the value itself.
        better: LOWER or HIGHER where one of the two is better, else empty.
        role: AXIS, TIME, DERIVED (from times: rates, speed-ups) or OBSERVED (all else).
        second: what ``Cell.second`` is; empty where the cells have none.
        align: ``left`` or ``right``; None leaves it to the cells.
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
        caption: what it shows, with what all its lines share in words.
        columns: all of one length.
        notes: how to read its cells; empty where nothing needs to be said.
        axes: axis -> value that all lines share and the caption names.
        id: of the numbered table that it is a part of (``F2``); empty outside of one.
        folds: whether a page may fold it when it is long.
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
        """The table as a data frame by header: numbers where none was rounded, else text."""
        columns = {
            column.header: [
                cell.value if not column.format and cell.is_plain else str(cell)
                for cell in column.cells
            ]
            for column in self.columns
        }
        return pd.DataFrame(columns, dtype=object)

    def last(self, lines: int) -> Table:
        """The same table with its last lines alone."""
        columns = (replace(column, cells=column.cells[-lines:]) for column in self.columns)
        return replace(self, columns=tuple(columns))

    def without(self, *names: str) -> Table:
        """The same table without the columns of these names."""
        return replace(self, columns=tuple(c for c in self.columns if c.name not in names))


@dataclass(frozen=True)
class Statement:
    """A sentence of a report that the data chose.

    Attributes:
        name: of the finding; unique in a report.
        answer: name of the answer that holds.
        sentence: in Markdown.
        place: where it stands (`lmperf.reporting.findings`).
        values: what the sentence was made from, by name.
    """

    name: str
    answer: str
    sentence: str
    place: str
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return self.sentence


def plain_words(value: object) -> str:
    """A value as it is: no number is rounded to fewer than twelve digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def joined(*parts: object) -> str:
    """The name of a column from its parts, empty ones left out: ``forward.triton.host``."""
    return ".".join(filter(None, map(str, parts)))
