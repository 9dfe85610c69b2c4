"""Numbers that know the rows of evidence that they are of, and which of them a page has printed.

Of a row, a speed-up or `Rows`, a template gets numbers with the keys of the rows behind them;
arithmetic unites the keys. While a page is rendered, whatever prints a number puts marks around it.
The marks that are left when the sentences are complete are those of the numbers that readers see:
`entries` lists them, and `bare` or `linked` takes the marks away.

A number that a section has computed in Python has no keys. One that a template has in its words,
such as "twice", is no value and is not listed.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from html import escape

import numpy as np
import pandas as pd

from lmperf.reporting.cells import Table
from lmperf.reporting.untrusted import plain
from lmperf.reporting.words import Count, Range, absent

FILE = "numbers.csv"
MOST_LINKED = 8  # rows that a number in a sentence shows on the site
# Private characters around the place of a number in `printing`, and behind its words.
OPEN, WORDS, CLOSE = "\ue004", "\ue005", "\ue006"
MARK = re.compile(f"{OPEN}(\\d+){WORDS}([^{OPEN}{CLOSE}]*){CLOSE}")
UNIT = re.compile(r" ?(ms|µs|[MG]iB|GB/s|TFLOP/s|MHz|W|s|h)\b")
# The numbers that have been printed, while a page is rendered.
printing: ContextVar[list[Number] | None] = ContextVar("printing", default=None)


@dataclass(frozen=True)
class Number:
    """A number that is printed: unrounded, with its interval or range, and the keys of its rows."""

    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A line of numbers.csv.

    Attributes:
        where: the sentence; of a number in a table its caption or number, the line and the column.
        number: as it is printed.
        unit: of `value`; empty for a ratio, a fraction or a count, and where none follows.
        rows: keys, separated by blanks; empty if they are not known.
    """

    page: str
    kind: str
    where: str
    number: str
    value: str
    low: str
    high: str
    unit: str
    verdict: str
    rows: str

    @property
    def spellings(self) -> set[str]:
        """How a reader may spell the number: with its interval, its unit, or without."""
        alone = self.number.partition(" (")[0]
        return {self.number, alone, f"{alone} {self.unit}"}

    @property
    def linked(self) -> list[str]:
        """The keys of the rows that the site shows."""
        return self.rows.split()[:MOST_LINKED]


class _Known:
    """Arithmetic that unites the keys of rows."""

    rows: tuple[str, ...] = ()


def _uniting(name: str, base: type) -> Callable:
    of_base = getattr(base, name)

    def operation(self, *others):
        found = of_base(self, *others)
        return found if found is NotImplemented else known(found, keys_of((self, *others)))

    return operation


OPERATIONS = [f"__{name}__" for name in ("neg", "abs")]
OPERATIONS += [
    f"__{side}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")
    for side in ("", "r")
]
KnownFloat = type("KnownFloat", (_Known, float), {n: _uniting(n, float) for n in OPERATIONS})
KnownInt = type("KnownInt", (_Known, int), {n: _uniting(n, int) for n in OPERATIONS})


class Words(str):
    """Printed words that compare as they read; as text they have the marks of their numbers."""

    marked: str

    def __new__(cls, marked: str) -> Words:
        made = super().__new__(cls, bare(marked))
        made.marked = marked
        return made

    def __str__(self) -> str:
        return self.marked


def known(value, rows: Iterable[str]):
    """A number, `Range` or `Count` that knows the keys of its rows; anything else as it is."""
    rows = tuple(dict.fromkeys(one for one in rows if isinstance(one, str)))
    if isinstance(value, Range | Count):
        return type(value)(*(known(one, rows) for one in value))
    if not rows or not _is_number(value):
        return value
    found = KnownInt(value) if isinstance(value, int | np.integer) else KnownFloat(value)
    found.rows = rows
    return found


def of_rows(value, rows: pd.DataFrame):
    """A number, `Range` or `Count` that was calculated from the rows of a frame."""
    return known(value, keys_of(rows))


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column as a template gets it: what is calculated from it knows the rows of its frame."""
    found = frame[name].copy()
    found.attrs["rows"] = keys_of(frame)
    return found


def keys_of(value) -> tuple[str, ...]:
    """The keys of the rows of a number, of several, of a row, of a `column` or of a frame."""
    if isinstance(value, pd.DataFrame):
        columns = [value[name] for name in ("key", "key_base") if name in value]
        return tuple(one for column in columns for one in column.dropna())
    if isinstance(value, pd.Series) and "rows" in value.attrs:
        return value.attrs["rows"]
    if isinstance(value, pd.Series):
        return tuple(value[name] for name in ("key", "key_base") if name in value.index)
    if isinstance(value, tuple):
        return tuple(dict.fromkeys(key for one in value for key in keys_of(one)))
    return getattr(value, "rows", ()) if isinstance(value, _Known) else ()


def _is_number(value) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def number_of(value) -> Number | None:
    """The number that a value is; None if it is none, or several of which none is in the middle."""
    if hasattr(type(value), "as_number"):  # not of the value: an undefined name raises
        return value.as_number
    if isinstance(value, pd.Series) and value.dtype.kind in "if" and value.notna().any():
        value = known(Range.of(value), keys_of(value))
    if isinstance(value, Range):
        return Number(value.middle, value.low, value.high, rows=keys_of(value))
    if isinstance(value, Count):
        value = value[0]
    return Number(value, rows=keys_of(value)) if _is_number(value) and not absent(value) else None


def words(text: str, value) -> str:
    """What is printed of a value, with the mark of its number while a page is rendered."""
    there, number = printing.get(), number_of(value)
    if there is not None and number is not None and OPEN not in text:
        there.append(number)
        text = f"{OPEN}{len(there) - 1}{WORDS}{text}{CLOSE}"
    return Words(text) if OPEN in text else text


def bare(text: str) -> str:
    """A text without marks."""
    return MARK.sub(r"\2", text)


def linked(text: str) -> str:
    """HTML in which a number names its first rows, as a cell of a table names its row."""

    def link(found: re.Match) -> str:
        number = printing.get()[int(found[1])]
        if not number.rows:
            return found[2]
        known = {"value": number.value, "low": number.low, "high": number.high}
        texts = {name: _digits(of) for name, of in known.items() if not absent(of)}
        texts |= {"row": " ".join(number.rows[:MOST_LINKED]), "rows": str(len(number.rows))}
        attributes = "".join(f' data-{name}="{escape(of)}"' for name, of in texts.items())
        return f"<data{attributes}>{found[2]}</data>"

    return MARK.sub(link, text)


def entries(page: str, text: str) -> Iterator[Entry]:
    """The numbers in the sentences of a finished page, with marks."""
    for line in text.splitlines():
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z*`\[])", line):
            where = bare(sentence).strip()
            for found in MARK.finditer(sentence):
                number = printing.get()[int(found[1])]
                unit = UNIT.match(sentence, found.end())
                yield _entry(
                    page, "sentence", where, found[2], unit[1] if unit else "", **vars(number)
                )


def entries_of(page: str, tables: Iterable[Table]) -> Iterator[Entry]:
    """The numbers in the cells of tables."""
    for place, table in enumerate(tables, 1):
        name = table.caption or table.title or f"table {place}"
        for line in table.lines:
            axes = [cell.words for cell, of in zip(line, table.columns, strict=True) if of.is_axis]
            for cell, column in zip(line, table.columns, strict=True):
                if column.is_axis or not _is_number(cell.value):
                    continue
                where = ", ".join(filter(None, (name, *axes, column.header)))
                numbers = {"value": cell.value, "low": cell.low, "high": cell.high}
                rows = tuple(filter(None, (cell.row, cell.base)))
                more = {"verdict": cell.verdict or "", "rows": rows}
                yield _entry(page, "table", where, cell.words, column.unit, **numbers, **more)


def _entry(page, kind, where, text, unit, value, low, high, verdict, rows) -> Entry:
    numbers = ("" if absent(one) else _digits(one) for one in (value, low, high))
    return Entry(page, kind, plain(where), plain(text), *numbers, unit, verdict, " ".join(rows))


def _digits(value) -> str:
    """Six digits: the last ones of a mean differ between processors."""
    return str(int(value)) if isinstance(value, int | np.integer) else f"{value:.6g}"


def to_csv(found: Iterable[Entry]) -> str:
    """The content of numbers.csv."""
    lines = io.StringIO()
    made = csv.DictWriter(lines, [one.name for one in fields(Entry)], lineterminator="\n")
    made.writeheader()
    made.writerows(map(asdict, found))
    return lines.getvalue()


def read_csv(text: str) -> list[Entry]:
    """The lines of a numbers.csv; none of a file of another form."""
    names = [one.name for one in fields(Entry)]
    lines = [*csv.reader(io.StringIO(text))]
    is_whole = lines[:1] == [names] and all(len(line) == len(names) for line in lines)
    return [Entry(*line) for line in lines[1:]] if is_whole else []


def changes(old: Iterable[Entry], new: Iterable[Entry]) -> list[str]:
    """A line for each printed number that differs: the same number of the same sentence or cell.

    Sentences are the same if they read the same without their digits. Numbers of sentences that
    only one side has are counted in the last line.
    """
    before, after = _by_place(old), _by_place(new)
    found = [
        f"{one.page}: {before[place].number} -> {one.number}: {one.where}"
        for place, one in after.items()
        if place in before and before[place].number != one.number
    ]
    gone, added = len(before.keys() - after.keys()), len(after.keys() - before.keys())
    more = f"in other sentences or cells: {gone:,} numbers gone, {added:,} new"
    return [*found, more] if gone or added else found


def _by_place(found: Iterable[Entry]) -> dict[tuple, Entry]:
    """Page, kind, words around a number, and how many such numbers come before -> number."""
    counts, places = Counter[tuple](), {}
    for one in found:
        words = one.where if one.kind == "table" else re.sub(r"[\d.,]*\d", "#", one.where)
        place = (one.page, one.kind, words)
        places[*place, counts[place]] = one
        counts[place] += 1
    return places
