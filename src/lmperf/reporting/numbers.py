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


class _Keyed:
    """Arithmetic that unites the keys of rows."""

    rows: tuple[str, ...] = ()


def _uniting(name: str, base: type) -> Callable:
    of_base = getattr(base, name)

    def operation(self, *others):
        result = of_base(self, *others)
        return result if result is NotImplemented else with_keys(result, keys_of((self, *others)))

    return operation


OPERATIONS = [f"__{name}__" for name in ("neg", "abs")]
OPERATIONS += [
    f"__{side}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")
    for side in ("", "r")
]
KeyedFloat = type("KeyedFloat", (_Keyed, float), {n: _uniting(n, float) for n in OPERATIONS})
KeyedInt = type("KeyedInt", (_Keyed, int), {n: _uniting(n, int) for n in OPERATIONS})


class Words(str):
    """Printed words that compare as they read; as text they have the marks of their numbers."""

    marked: str

    def __new__(cls, marked: str) -> Words:
        words = super().__new__(cls, bare(marked))
        words.marked = marked
        return words

    def __str__(self) -> str:
        return self.marked


class KeyedColumn(pd.Series):
    """A column of a frame that knows the keys of its rows, as does what is made of it."""

    row_keys: tuple[str, ...] = ()
    _metadata = ["row_keys"]
    _constructor = property(lambda self: KeyedColumn)


def with_keys(value, keys: Iterable[str]):
    """A number, `Range` or `Count` that knows the keys of its rows; anything else as it is."""
    rows = tuple(dict.fromkeys(key for key in keys if isinstance(key, str)))
    if isinstance(value, Range | Count):
        return type(value)(*(with_keys(number, rows) for number in value))
    if not rows or not _is_number(value):
        return value
    number = KeyedInt(value) if isinstance(value, int | np.integer) else KeyedFloat(value)
    number.rows = rows
    return number


def of_rows(value, rows: pd.DataFrame):
    """A number, `Range` or `Count` that was calculated from the rows of a frame."""
    return with_keys(value, keys_of(rows))


def column(frame: pd.DataFrame, name: str) -> KeyedColumn:
    """A column as a template gets it: what is calculated from it knows the rows of its frame."""
    values = KeyedColumn(frame[name])
    values.row_keys = keys_of(frame)
    return values


def keys_of(value) -> tuple[str, ...]:
    """The keys of the rows of a number, of several, of a row, of a `KeyedColumn` or of a frame."""
    if isinstance(value, pd.DataFrame):
        columns = [value[name] for name in ("key", "key_base") if name in value]
        return tuple(key for column in columns for key in column.dropna())
    if isinstance(value, KeyedColumn):
        return value.row_keys
    if isinstance(value, pd.Series):
        return tuple(value[name] for name in ("key", "key_base") if name in value.index)
    if isinstance(value, tuple):
        return tuple(dict.fromkeys(key for item in value for key in keys_of(item)))
    return getattr(value, "rows", ()) if isinstance(value, _Keyed) else ()


def _is_number(value) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def number_of(value) -> Number | None:
    """The number that a value is; None if it is none, or several of which none is in the middle."""
    if hasattr(type(value), "as_number"):  # not of the value: an undefined name raises
        return value.as_number
    if isinstance(value, pd.Series) and value.dtype.kind in "if" and value.notna().any():
        value = with_keys(Range.of(value), keys_of(value))
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

    def link(match: re.Match) -> str:
        number = printing.get()[int(match[1])]
        if not number.rows:
            return match[2]
        numbers = {"value": number.value, "low": number.low, "high": number.high}
        texts = {name: _digits(value) for name, value in numbers.items() if not absent(value)}
        texts |= {"row": " ".join(number.rows[:MOST_LINKED]), "rows": str(len(number.rows))}
        attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in texts.items())
        return f"<data{attributes}>{match[2]}</data>"

    return MARK.sub(link, text)


def entries(page: str, text: str) -> Iterator[Entry]:
    """The numbers in the sentences of a finished page, with marks."""
    for line in text.splitlines():
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z*`\[])", line):
            where = bare(sentence).strip()
            for match in MARK.finditer(sentence):
                number = printing.get()[int(match[1])]
                unit = UNIT.match(sentence, match.end())
                unit = unit[1] if unit else ""
                yield _entry(page, "sentence", where, match[2], unit, number)


def entries_of(page: str, tables: Iterable[Table]) -> Iterator[Entry]:
    """The numbers in the cells of tables."""
    for place, table in enumerate(tables, 1):
        name = table.caption or table.title or f"table {place}"
        for line in table.lines:
            cells = [*zip(line, table.columns, strict=True)]
            axes = [cell.words for cell, column in cells if column.is_axis]
            for cell, column in cells:
                if column.is_axis or not _is_number(cell.value):
                    continue
                where = ", ".join(filter(None, (name, *axes, column.header)))
                rows = tuple(filter(None, (cell.row, cell.base)))
                number = Number(cell.value, cell.low, cell.high, cell.verdict or "", rows)
                yield _entry(page, "table", where, cell.words, column.unit, number)


def _entry(page: str, kind: str, where: str, words: str, unit: str, number: Number) -> Entry:
    values = (number.value, number.low, number.high)
    texts = ("" if absent(value) else _digits(value) for value in values)
    rows = " ".join(number.rows)
    return Entry(page, kind, plain(where), plain(words), *texts, unit, number.verdict, rows)


def _digits(value) -> str:
    """Six digits: the last ones of a mean differ between processors."""
    return str(int(value)) if isinstance(value, int | np.integer) else f"{value:.6g}"


def to_csv(printed: Iterable[Entry]) -> str:
    """The content of numbers.csv."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, [field.name for field in fields(Entry)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, printed))
    return lines.getvalue()


def read_csv(text: str) -> list[Entry]:
    """The lines of a numbers.csv; none of a file of another form."""
    names = [field.name for field in fields(Entry)]
    lines = [*csv.reader(io.StringIO(text))]
    is_whole = lines[:1] == [names] and all(len(line) == len(names) for line in lines)
    return [Entry(*line) for line in lines[1:]] if is_whole else []


def changes(old: Iterable[Entry], new: Iterable[Entry]) -> list[str]:
    """A line for each printed number that differs: the same number of the same sentence or cell.

    Sentences are the same if they read the same without their digits. Numbers of sentences that
    only one side has are counted in the last line.
    """
    before, after = _by_place(old), _by_place(new)
    moved = [
        f"{entry.page}: {before[place].number} -> {entry.number}: {entry.where}"
        for place, entry in after.items()
        if place in before and before[place].number != entry.number
    ]
    gone, added = len(before.keys() - after.keys()), len(after.keys() - before.keys())
    more = f"in other sentences or cells: {gone:,} numbers gone, {added:,} new"
    return [*moved, more] if gone or added else moved


def _by_place(printed: Iterable[Entry]) -> dict[tuple, Entry]:
    """Page, kind, words around a number, and how many such numbers come before -> number."""
    counts, places = Counter[tuple](), {}
    for entry in printed:
        words = entry.where if entry.kind == "table" else re.sub(r"[\d.,]*\d", "#", entry.where)
        place = (entry.page, entry.kind, words)
        places[*place, counts[place]] = entry
        counts[place] += 1
    return places
