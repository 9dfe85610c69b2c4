"""Tables of results as text for a terminal, Markdown, CSV, JSON, HTML and LaTeX.

CSV and JSON hold unrounded numbers, the others the words of the cells. HTML holds both: the number
is in ``data-value``, so that a script can sort by it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from html import escape
from typing import Any

from tabulate import tabulate

from lmperf.reporting.foreign import deep, in_html, in_markdown, plain
from lmperf.reporting.markdown import laid_out, markdown, notes_of
from lmperf.reporting.marks import MEANINGS
from lmperf.results import Cell, Column, Table

# Fields of a cell: each gets a CSV column after the value if any cell of the column has it.
COMPANIONS = ("low", "high", "n", "std", "second", "verdict", "state", "marks")


def _text(table: Table) -> str:
    headers, rows, aligns = laid_out(table)
    body = tabulate(
        rows,
        headers=headers,
        tablefmt="simple",
        colalign=aligns if rows else None,
        disable_numparse=True,
    )
    return plain("\n".join(filter(None, (table.caption, body, notes_of(table)))))


def _markdown(table: Table) -> str:
    return in_markdown(markdown(table, fold=None))


def _csv(table: Table) -> str:
    """The table as CSV with stable column names and unrounded numbers.

    The column ``forward.triton`` is followed by ``forward.triton.low``, ``.high``, ``.n``,
    ``.std``, a column named after ``Column.second``, ``.verdict``, ``.state`` (why there is no
    value) and ``.marks``, each only if any cell has it. The first column is the caption of
    the table, so that several files can be concatenated.
    """
    headers, columns = ["table"], [[table.caption] * table.length]
    for column in table.columns:
        headers.append(column.name)
        columns.append([_written(cell.value) for cell in column.cells])
        for companion in COMPANIONS:
            values = [_written(getattr(cell, companion)) for cell in column.cells]
            if any(value != "" for value in values):
                headers.append(f"{column.name}.{_companion_name(column, companion)}")
                columns.append(values)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(plain, headers))
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().rstrip("\n")


def _companion_name(column: Column, companion: str) -> str:
    named = companion == "second" and column.second
    return re.sub(r"\W+", "_", column.second).strip("_") if named else companion


def _written(value) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ";".join(value)
    return repr(value) if isinstance(value, float) else plain(str(value))


def document(table: Table) -> dict[str, Any]:
    """A table as a JSON value; empty fields of cells and columns are left out."""
    return deep(
        plain,
        {
            "id": table.id,
            "caption": table.caption,
            "axes": dict(table.axes),
            "notes": notes_of(table),
            "columns": [
                {
                    **{name: getattr(column, name) for name in _DESCRIBED if getattr(column, name)},
                    "cells": [_cell(cell) for cell in column.cells],
                }
                for column in table.columns
            ],
        },
    )


_DESCRIBED = ("name", "header", "unit", "format", "better", "role", "second")


def _cell(cell: Cell) -> dict[str, Any]:
    values = ((name, getattr(cell, name)) for name in Cell.__dataclass_fields__)
    found = {name: value for name, value in values if value is not None and value != ()}
    return {**found, "marks": list(cell.marks)} if cell.marks else found


def _json(table: Table) -> str:
    return json.dumps(document(table), indent=1, ensure_ascii=False, allow_nan=False)


def _html(table: Table) -> str:
    _, _, aligns = laid_out(table)
    heads = (
        f"<th{_styled(align)}>{_shown(column.header)}</th>"
        for column, align in zip(table.columns, aligns, strict=True)
    )
    lines = zip(*(column.cells for column in table.columns), strict=True)
    rows = (
        "".join(
            f"<td{_styled(align)}{_sorted_by(cell)}>{_shown(str(cell))}</td>"
            for cell, align in zip(line, aligns, strict=True)
        )
        for line in lines
    )
    words = notes_of(table)
    return "\n".join(
        [
            "<table>",
            f"<caption>{_shown(table.caption)}</caption>",
            f"<thead>\n<tr>{''.join(heads)}</tr>\n</thead>",
            "<tbody>",
            *(f"<tr>{row}</tr>" for row in rows),
            "</tbody>",
            "</table>",
            *([f"<p>{_shown(words)}</p>"] if words else []),
        ]
    )


def _shown(text: str) -> str:
    return in_html(escape(text))


def _styled(align: str) -> str:
    return ' style="text-align: right;"' if align == "right" else ""


def _sorted_by(cell: Cell) -> str:
    """The attribute ``data-value`` with the number of a cell; empty for text."""
    if isinstance(cell.value, bool) or not isinstance(cell.value, int | float):
        return ""
    return f' data-value="{cell.value!r}"'


# Characters that LaTeX would interpret, or that pdflatex cannot print -> how to write them.
_IN_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "µ": r"$\mu$",
    "μ": r"$\mu$",
    "²": r"$^2$",
    "³": r"$^3$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
}
_UNKNOWN = "?"


def in_latex(text: str) -> str:
    """Text in ASCII for LaTeX; accents are dropped, other unknown characters become ``?``."""
    return "".join(map(_in_latex, plain(text)))


def _in_latex(character: str) -> str:
    if character in _IN_LATEX:
        return _IN_LATEX[character]
    if " " <= character <= "~":
        return character
    bare = [c for c in unicodedata.normalize("NFKD", character) if " " <= c <= "~"]
    return "".join(_IN_LATEX.get(c, c) for c in bare) or _UNKNOWN


def _latex(table: Table) -> str:
    """A booktabs tabular; superscript letters on cells refer to explanations of marks below it."""
    _, _, aligns = laid_out(table)
    letters = _letters(table)
    lines = zip(*(column.cells for column in table.columns), strict=True)
    rows = (" & ".join(_latex_cell(cell, letters) for cell in line) for line in lines)
    notes = [_emphasised(in_latex(table.notes.strip()))] if table.notes.strip() else []
    notes += [f"$^{{{letter}}}$ {in_latex(MEANINGS[mark])}." for mark, letter in letters.items()]
    return "\n".join(
        [
            f"% {in_latex(table.caption)}",
            f"\\begin{{tabular}}{{{''.join(align[0] for align in aligns)}}}",
            r"\toprule",
            " & ".join(in_latex(column.header) for column in table.columns) + r" \\",
            r"\midrule",
            *(rf"{row} \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par {note}" for note in notes),
        ]
    )


def _emphasised(text: str) -> str:
    """LaTeX in which words between stars, as Markdown has them, are emphasised."""
    return re.sub(r"(?<!\w)\*(\w[^*]*)\*", r"\\emph{\1}", text)


def _letters(table: Table) -> dict[str, str]:
    """Mark -> footnote letter, for each mark with a sign that a cell of the table has."""
    seen = {mark for cell in table.cells for mark in cell.marks}
    return dict(zip((m for m in MEANINGS if m in seen), "abcdefgh", strict=False))


def _latex_cell(cell: Cell, letters: dict[str, str]) -> str:
    marks = ",".join(letters[mark] for mark in cell.marks if mark in letters)
    # LaTeX would read a leading bracket or star as an argument of the preceding line break.
    words = re.sub(r"^(?=[\[*])", "{}", in_latex(cell.words))
    return f"{words}$^{{{marks}}}$" if marks else words


def sentence(text: str) -> str:
    """The sentence of a finding for a terminal; the text of a link replaces the link."""
    return plain(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": _text,
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
    "html": _html,
    "latex": _latex,
}
