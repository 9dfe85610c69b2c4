"""Make Markdown from tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd
from tabulate import tabulate

from lmperf.reporting import marks
from lmperf.reporting.foreign import escaped, in_html
from lmperf.reporting.numbers import counted
from lmperf.reporting.tables import from_frame
from lmperf.results import Table

# A page folds tables with more lines into <details>.
FOLD = 15


def markdown(table: Table, fold: int | None = FOLD) -> str:
    """The table as Markdown with its caption, in ``<details>`` if longer than ``fold`` lines."""
    words = notes_of(table)
    text = body(table) + (f"\n\n{words}" if words else "")
    if fold is None or not table.folds or table.length <= fold:
        return f"**{table.caption}.**\n\n{text}"
    title = f"{table.caption} ({counted(table.length, 'line')})"
    opening = f"<details>\n<summary>{in_html(escaped(title))}</summary>\n"
    return f"{opening}\n{text}\n\n</details>"


def notes_of(table: Table) -> str:
    """The notes of a table, followed by the legend of the signs in its cells."""
    return " ".join(filter(None, (table.notes.strip(), marks.legend(table.cells))))


def body(table: Table) -> str:
    """The headers and lines of the table as a Markdown table, escaped and without padding."""
    headers, rows, aligns = laid_out(table)
    text = tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        headers=[escaped(name) for name in headers],
        tablefmt="pipe",
        colalign=aligns if rows else None,
        disable_numparse=True,
    )
    head, rule, *rest = text.splitlines()
    rule = re.sub(r"-{3,}", "---", rule)
    return "\n".join([_unpadded(head), rule, *map(_unpadded, rest)])


def pipe_table(
    frame: pd.DataFrame,
    right: Sequence[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> str:
    """A data frame as a Markdown table without a caption; for the arguments see ``from_frame``."""
    return body(from_frame("", frame, right=right, headers=headers))


def laid_out(table: Table) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """The headers of a table, its lines as text, and the alignment of each column."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    aligns = [
        column.align or ("right" if _numeric(cells) else "left")
        for column, cells in zip(table.columns, columns, strict=True)
    ]
    return [column.header for column in table.columns], list(zip(*columns, strict=True)), aligns


def _unpadded(line: str) -> str:
    return re.sub(r" {2,}", " ", line)


def _numeric(cells: Sequence[str]) -> bool:
    """Whether most cells of a column begin with a digit; such a column is right-aligned."""
    return sum(bool(re.match(r"[-+]?\d", cell)) for cell in cells) * 2 > len(cells)
