"""Tables of a report in other forms than a page's: for a terminal, a spreadsheet, a paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

import pandas as pd
from tabulate import tabulate

from lmperf.reporting.foreign import in_html, in_markdown, plain
from lmperf.reporting.tables import Lines, cells_of


def _text(table: Lines) -> str:
    words = " ".join(filter(None, (table.note.strip(), table.legend())))
    return plain("\n".join(filter(None, (table.caption, _laid_out(table, "simple"), words))))


def _markdown(table: Lines) -> str:
    return in_markdown(table.markdown(fold=None))


def _csv(table: Lines) -> str:
    headers, rows, _ = cells_of(table.frame, table.right)
    named = [(table.caption, *row) for row in rows]  # what all its lines share stands there
    return plain(pd.DataFrame(named, columns=["table", *headers]).to_csv(index=False)).rstrip("\n")


def _html(table: Lines) -> str:
    caption = f"<table>\n<caption>{escape(table.caption)}</caption>"
    return in_html(_laid_out(table, "html").replace("<table>", caption, 1))


def _latex(table: Lines) -> str:
    return plain(f"% {table.caption}\n") + _laid_out(table, "latex_booktabs", plain)


def _laid_out(table: Lines, form: str, read: Callable[[str], str] = str) -> str:
    headers, rows, aligns = cells_of(table.frame, table.right)
    return tabulate(
        [[read(cell) for cell in row] for row in rows],
        headers=[read(header) for header in headers],
        tablefmt=form,
        colalign=aligns if rows else None,
        disable_numparse=True,
    )


def sentence(text: str) -> str:
    """A sentence of a finding as a terminal shows it: a link is its words."""
    return plain(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


FORMATS: dict[str, Callable[[Lines], str]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "html": _html,
    "latex": _latex,
}
