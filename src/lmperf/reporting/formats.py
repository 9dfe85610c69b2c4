"""Tables as text for a terminal, Markdown, HTML, CSV, JSON, LaTeX and Typst.

CSV and JSON hold unrounded numbers, the others the words of the cells. HTML holds both, so that a
script can sort by the numbers.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from lmperf.reporting.cells import SIGNS, Cell, Table, TableColumn
from lmperf.reporting.html import inline
from lmperf.reporting.untrusted import deep, plain
from lmperf.reporting.words import count

FOLD = 15
# Characters of a text that make its column a wide one.
WIDE = 24
# Fields of a cell that get a column of their own in CSV if any cell of the column has them.
COMPANIONS = ("low", "high", "n", "second", "verdict", "state", "marks", "waits")


def legend(table: Table) -> str:
    """The notes of a table and the meaning of the signs in its cells."""
    counts = {mark: sum(mark in cell.marks for cell in table.cells) for mark in SIGNS}
    signs = [f"{SIGNS[m][0]} {SIGNS[m][1]} ({count(n, 'cell')})." for m, n in counts.items() if n]
    if any(cell.waits for cell in table.cells):
        signs.append(table.italic)
    return " ".join(filter(None, (table.notes, *signs)))


def again(table: Table) -> str:
    """The key of one row of the table, for the command that measures it again; or nothing."""
    keys = [c.row for c in table.cells if c.row and c.value is not None and not c.marks]
    return keys[-1] if keys and table.again else ""


def aligns(table: Table) -> list[str]:
    """``left`` or ``right`` for each column."""
    return ["right" if _is_numeric(column) else "left" for column in table.columns]


def _is_numeric(column: TableColumn) -> bool:
    """Whether most cells with a value begin with a number; of none, whether it has a unit."""
    number = re.compile(r"[-+]?\d")
    matches = [number.match(cell.words) for cell in column.cells if cell.value is not None]
    return 2 * sum(map(bool, matches)) > len(matches) if matches else bool(column.unit)


def markdown(table: Table) -> str:
    """The table with its caption, in ``<details>`` if it is long."""
    body = _tabulated(table, "pipe", lambda cell: _barred(_italic(cell)), _barred)
    head, rule, *rest = body.splitlines()
    squeezed = [re.sub(r" {2,}", " ", line) for line in (head, re.sub("-{3,}", "---", rule), *rest)]
    text = "\n\n".join(filter(None, ("\n".join(squeezed), legend(table))))
    if not table.folds or table.length <= FOLD:
        caption = table.caption.replace("*", r"\*")
        return f"**{caption}.**\n\n{text}" if caption else text
    title = f"{escape(plain(table.caption), quote=False)} ({table.length:,} lines)"
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def of_plain_text(form: Callable[..., str]) -> Callable[..., str]:
    """A format without references to characters; see `untrusted`."""

    @wraps(form)
    def formed(table: Table, *arguments) -> str:
        return form(deep(plain, table), *arguments)

    return formed


@of_plain_text
def terminal(table: Table, most: int | None = None) -> str:
    """The table for a terminal or a mail.

    most: characters of an axis value in a line; longer ones are wrapped.
    """
    body = _tabulated(table, "simple", _italic, str, most)
    return "\n".join(filter(None, (table.caption, body, legend(table))))


def _tabulated(
    table: Table,
    form: str,
    form_cell: Callable[[Cell], str],
    form_header: Callable[[str], str],
    most: int | None = None,
) -> str:
    return tabulate(
        [[form_cell(cell) for cell in line] for line in table.lines],
        headers=[form_header(column.header) for column in table.columns],
        tablefmt=form,
        colalign=aligns(table) if table.length else None,
        disable_numparse=True,
        maxcolwidths=[most if column.is_axis else None for column in table.columns]
        if most
        else None,
    )


def _italic(cell: Cell) -> str:
    return f"*{cell}*" if cell.waits and cell.value is not None else str(cell)


def _barred(text: str) -> str:
    return text.replace("|", "&#124;")


def html(table: Table) -> str:
    """The table in a scrollable box, with its notes; without empty lines, which end it in Markdown.

    A cell has its unrounded number in ``data-value``, the ends of its interval in ``data-low`` and
    ``data-high``, and the key of its row of evidence in ``data-row``.
    """
    sides = ['class="right"' if side == "right" else "" for side in aligns(table)]
    heads = "".join(map(_th, table.columns, sides))
    rows = "\n".join(f"<tr>{''.join(map(_td, line, sides))}</tr>" for line in table.lines)
    caption, note = _shown(table.caption), inline(legend(table))
    title = f"<caption><span>{caption}</span></caption>\n" if caption else ""
    return (
        '<div class="table">\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption or "Table"}">\n'
        f'<table class="data">\n{title}<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n"
        + (f'<p class="note">{note}</p>\n' if note else "")
        + "</div>"
    )


def _th(column: TableColumn, side: str) -> str:
    is_wide = not side and max((len(cell.words) for cell in column.cells), default=0) > WIDE
    axis = "data-axis" if column.is_axis else ""
    wide = 'class="wide"' if is_wide else ""
    attributes = " ".join(filter(None, ('scope="col"', side, wide, axis)))
    return f"<th {attributes}>{_shown(column.header)}</th>"


def _td(cell: Cell, side: str) -> str:
    number = cell.value if isinstance(cell.value, int | float | np.number) else None
    fields = {"value": number, "low": cell.low, "high": cell.high, "row": cell.row}
    data = [f'data-{n}="{escape(str(v))}"' for n, v in fields.items() if v is not None]
    attributes = "".join(f" {attribute}" for attribute in (side, *data) if attribute)
    return f"<td{attributes}>{inline(_italic(cell))}</td>"


def _shown(text: str) -> str:
    return escape(plain(text))


@of_plain_text
def to_csv(table: Table) -> str:
    """Stable column names; ``name.low``, ``name.verdict``, ... follow a column where it has them.

    The first column is the caption, so that several files can be concatenated.
    """
    columns = {"table": [table.caption] * table.length}
    for column in table.columns:
        columns[column.name] = [cell.value for cell in column.cells]
        for companion in COMPANIONS:
            values = [getattr(cell, companion) or None for cell in column.cells]
            if any(value is not None for value in values):
                columns[f"{column.name}.{companion}"] = values
    columns = {name: [*map(_in_csv, values)] for name, values in columns.items()}
    frame = pd.DataFrame(columns, dtype=object)
    return frame.to_csv(index=False, lineterminator="\n").rstrip("\n")


def _in_csv(value):
    return ";".join(value) if isinstance(value, tuple) else value


def document(table: Table) -> dict[str, Any]:
    """A table as a JSON value; empty fields are left out."""
    return deep(plain, _bare(asdict(table) | {"notes": legend(table), "italic": None}))


def _bare(value):
    if isinstance(value, dict):
        return {name: _bare(field) for name, field in value.items() if not _is_empty(field)}
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else str(value)  # JSON has no inf and no nan


def _is_empty(value) -> bool:
    return value is None or value is False or (isinstance(value, str | tuple) and not value)


def to_json(table: Table) -> str:
    """The table as JSON."""
    return json.dumps(document(table), indent=1, ensure_ascii=False, allow_nan=False)


# Characters that LaTeX would interpret, or that pdflatex cannot print -> how to write them.
_IN_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    **{"–": "--", "—": "---", "…": r"\ldots{}", "±": r"$\pm$", "·": r"$\cdot$"},
    **{"×": r"$\times$", "µ": r"$\mu$", "μ": r"$\mu$", "²": r"$^2$", "³": r"$^3$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "ᶜ": "$^{c}$", "ˡ": "$^{l}$"},
    **{"ᵖ": "$^{p}$", "ˢ": "$^{s}$"},
}
_UNKNOWN = "?"


def in_latex(text: str) -> str:
    """Text in ASCII for LaTeX; accents are dropped, other unknown characters become ``?``."""
    return "".join(map(_in_latex, text))


def _in_latex(character: str) -> str:
    if character in _IN_LATEX:
        return _IN_LATEX[character]
    if " " <= character <= "~":
        return character
    bare = [c for c in unicodedata.normalize("NFKD", character) if " " <= c <= "~"]
    return "".join(_IN_LATEX.get(c, c) for c in bare) or _UNKNOWN


@of_plain_text
def latex(table: Table) -> str:
    """A booktabs tabular."""
    rows = (" & ".join(map(_latex_cell, line)) for line in table.lines)
    note = re.sub(r"(?<!\w)\*(\w[^*]*)\*", r"\\emph{\1}", in_latex(legend(table)))
    parts = [
        f"% {in_latex(table.caption)}",
        f"\\begin{{tabular}}{{{''.join(side[0] for side in aligns(table))}}}",
        r"\toprule",
        " & ".join(in_latex(column.header) for column in table.columns) + r" \\",
        r"\midrule",
        *(rf"{row} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *([rf"\par {note}"] if note else []),
    ]
    return "\n".join(parts)


def _latex_cell(cell: Cell) -> str:
    # LaTeX would read a leading bracket or star as an argument of the preceding line break.
    words = re.sub(r"^(?=[\[*])", "{}", in_latex(str(cell)))
    return rf"\emph{{{words}}}" if cell.waits and cell.value is not None else words


# Characters that Typst would interpret, anywhere in text or at the start of it.
_TYPST = re.compile(r"[\\#\[\]$*_@<>`~/]|^[-+=]")


def in_typst(text: str) -> str:
    """Text for Typst, in which no character is markup."""
    return _TYPST.sub(lambda match: f"\\{match[0]}", text)


@of_plain_text
def typst(table: Table) -> str:
    """A figure with a table and its caption; notes follow it."""
    heads = (f"[*{in_typst(column.header)}*]" for column in table.columns)
    lines = (f"  {', '.join(map(_typst_cell, line))}," for line in table.lines)
    sides = "".join(f"{side}, " for side in aligns(table))
    note = in_typst(legend(table))
    parts = [
        f"#figure(caption: [{in_typst(table.caption)}], table(",
        f"  columns: {len(table.columns)}, align: ({sides}),",
        f"  table.header({', '.join(heads)}),",
        *lines,
        "))",
        *([note] if note else []),
    ]
    return "\n".join(parts)


def _typst_cell(cell: Cell) -> str:
    words = in_typst(str(cell))
    return f"[_{words}_]" if cell.waits and cell.value is not None else f"[{words}]"


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": terminal,
    "markdown": markdown,
    "csv": to_csv,
    "json": to_json,
    "html": html,
    "latex": latex,
    "typst": typst,
}
