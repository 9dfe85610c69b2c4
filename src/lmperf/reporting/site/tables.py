"""The tables of the site: HTML with words for readers and numbers for scripts.

A cell has its unrounded number in ``data-value``, the ends of its interval in ``data-low`` and
``data-high``, the number of samples in ``data-n`` and, in ``data-row``, the place of its row of
evidence among the rows of the page (`lmperf.reporting.site.rows`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from lmperf.names import in_order
from lmperf.reporting.foreign import in_html
from lmperf.reporting.markdown import laid_out, notes_of
from lmperf.reporting.numbers import counted
from lmperf.reporting.site.rows import Rows
from lmperf.reporting.site.words import inline
from lmperf.results import AXIS, Cell, Column, Table

# A longer table shows its first lines and refers to the CSV.
MOST_LINES = 1000
# A column of longer texts is wide enough for this many characters.
WIDE = 24
# An axis with this many different values or fewer can be filtered by value; any other column of
# texts with this many.
MOST_CHOICES, MOST_WORDS = 40, 12
LEAST_LINES = 8
# Characters that a cell needs to be read as Markdown: a link, code or emphasis.
_MARKDOWN = re.compile(r"[\[`*]")


def html_table(table: Table, rows: Rows, most: int = MOST_LINES) -> str:
    """A table as HTML, complete without scripts.

    Args:
        rows: gives the row of evidence behind each cell a place on the page.
        most: number of lines that are shown.
    """
    aligns = laid_out(table)[2]
    shown = [column.cells[:most] for column in table.columns]
    columns = [
        _cells(column, cells, align, rows)
        for column, cells, align in zip(table.columns, shown, aligns, strict=True)
    ]
    heads = "".join(map(_head, table.columns, aligns))
    lines = "\n".join(f"<tr>{''.join(line)}</tr>" for line in zip(*columns, strict=True))
    caption, left = _text(table.caption), table.length - most
    more = f"{counted(left, 'further line')} left out here: see the CSV." if left > 0 else ""
    notes = " ".join(filter(None, (more, notes_of(table))))
    filtered = ' data-filtered=""' if table.length >= LEAST_LINES else ""
    return (
        f'<div class="table"{filtered}>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">\n'
        f'<table class="sortable n-last">\n<caption><span>{caption}</span></caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>\n</div>\n"
        + (f'<p class="note">{inline(notes)}</p>\n' if notes else "")
        + "</div>\n"
    )


def _head(column: Column, align: str) -> str:
    choices = {cell.words for cell in column.cells}
    texts = all(isinstance(cell.value, str) for cell in column.cells)
    most = MOST_CHOICES if column.role == AXIS else MOST_WORDS if texts else 0
    is_axis = 1 < len(choices) <= most
    longest = max(map(len, choices), default=0)
    style = "right" if align == "right" else "wide" if longest > WIDE else ""
    attributes = [
        *([f' class="{style}"'] if style else []),
        *([' data-axis=""'] if is_axis else []),
    ]
    return f'<th scope="col"{"".join(attributes)}>{_text(column.header)}</th>'


def _cells(column: Column, cells: Sequence[Cell], align: str, rows: Rows) -> list[str]:
    """The cells of a column; texts of an axis are sorted in the order of reports."""
    style = ' class="right"' if align == "right" else ""
    texts = {cell.value for cell in cells if isinstance(cell.value, str)}
    ranks = {}
    if column.role == AXIS and texts:
        ranks = {text: place for place, text in enumerate(in_order(column.name, list(texts)))}
    return [
        f"<td{style}{_attributes(cell, ranks, rows)}>{_words(str(cell))}</td>" for cell in cells
    ]


def _attributes(cell: Cell, ranks: dict[str, int], rows: Rows) -> str:
    found = []
    if _is_number(cell.value):
        found.append(f' data-value="{cell.value!r}"')
    elif cell.value in ranks:
        found.append(f' data-sort="{ranks[cell.value]}"')
    for name in ("low", "high", "n"):
        value = getattr(cell, name)
        if value is not None:
            found.append(f' data-{name}="{value!r}"')
    place = rows.place(cell.row)
    return "".join(found) + (f' data-row="{place}"' if place is not None else "")


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(text: str) -> str:
    return inline(text) if _MARKDOWN.search(text) else _text(text)


def _text(text: str) -> str:
    return in_html(escape(text))
