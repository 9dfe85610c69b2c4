"""Tables as templates write them: a title, a caption, a line for each column, a note."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lmperf.dtypes import DTYPES
from lmperf.errors import UserError
from lmperf.names import ORDERS
from lmperf.reporting.columns import (
    Quantity,
    across,
    known_size,
    memory,
    number,
    over,
    status,
    text,
    time,
)
from lmperf.reporting.frames import ordered
from lmperf.reporting.numbers import bare
from lmperf.reporting.rows import Rows
from lmperf.reporting.sentences import CLOSE, ENDED, complete, paragraph
from lmperf.reporting.words import FILTERS

# A column as a template writes it: `SDPA, compiled (ms): {sdpa.ms:sig} (interval)`.
UNIT = "ms|µs|s|W|[MG]iB|GB/s|TFLOP/s|MHz|%|bytes an element"
LINE = re.compile(rf"(?P<header>.*?)(?: \((?P<unit>{UNIT})\))?: *(?P<cell>{{.*)")
# A name that somebody gave may have character references (`untrusted.neutral`).
FIELD = re.compile(r"\{(?:(?P<owner>(?:\w|&#\d+;)+)\.)?(?P<name>[^{}:]+)(?P<forms>(?::\w+)*)\}")
AXIS = re.compile(r"(?P<header>[^{}]*)\{(?P<name>\w+)\}")
ACROSS = re.compile(r"\{(?P<axis>\w+)\}(?:, )?")
INTERVAL, ELLIPSIS, SEPARATOR = " (interval)", "{...}", " | "
OWNERS = ("implementation", "phase", "dtype", "load")
SIZES = {"memory": memory, "known": known_size}
EXAMPLE = "write a line for each column, such as `size: {size}`"


@dataclass
class Written:
    """A table as a template writes it.

        ## T1. Train steps
        Steps at context 512
        {size} numerics {dtype}
        {phase} (ms): {time}
        SDPA, compiled (ms): {sdpa_compiled_blocks.ms} (interval)
        peak (GiB): {peak_gib:memory}
        over float32: {over.float32}
        larger batch: {larger.tokens_s:rounded} (batch {batch:whole})
        Peaks are those of the second step.

    A title, a caption, the axes with their headers, a line for each column, and a note, each of
    which may be missing except for the axes. A header begins with the axis of whose values each has
    the column. A field is a column or an expression over columns: before it the implementation,
    phase or dtype that has it, behind it a filter, `memory` or `known`. A second field is the
    further number of a cell. `{time}` and `{over.base}` are the columns of these names, of which a
    note tells how to read them. At `{...}` stand columns that a section has made.

    Attributes:
        axes: name -> its header; an empty one is that of `lmperf.names`.
    """

    title: str
    caption: str
    axes: dict[str, str]
    columns: list[Quantity]
    note: str


def written(text: str, rows: Rows, others: Sequence[Quantity] = ()) -> Written:
    """The table of a text for these rows; others: the columns at `{...}`.

    Raises:
        UserError: a line is none of a table, or there is no such column or filter.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((n for n, line in enumerate(lines) if "{" in line), None)
    if start is None:
        raise UserError(f"table: {EXAMPLE}")
    end = next((n for n, line in enumerate(lines) if n > start and "{" not in line), len(lines))
    if end < len(lines) and not ENDED.search(lines[-1].rstrip(CLOSE)):
        raise UserError(f"table: {lines[end]!r} is no column; {EXAMPLE}")
    above, fields = (
        [complete(bare(line)) for line in part] for part in (lines[:start], lines[start:end])
    )
    axes = {axis["name"]: axis["header"].strip(" :") for axis in AXIS.finditer(fields[0])}
    for name in axes:
        _require(name, rows)
    title = next((line.removeprefix("## ") for line in above if line.startswith("## ")), "")
    caption = " ".join(line for line in above if not line.startswith("## "))
    columns = [column for line in fields[1:] for column in line.split(SEPARATOR) if column]
    note = paragraph("\n".join(lines[end:]))
    return Written(title, caption, axes, [*_columns(columns, rows, others)], note)


def _columns(lines: Sequence[str], rows: Rows, others) -> Iterator[Quantity]:
    """The columns of lines; adjacent ones across an axis stand together for each of its values."""
    for axis, adjacent in itertools.groupby(lines, _axis_across):
        if axis:
            _require(axis, rows)
            within = [ACROSS.sub("", line, count=1) for line in adjacent]
            yield from across(axis, _values(axis, rows), *_columns(within, rows, others))
            continue
        for line in adjacent:
            yield from others if line == ELLIPSIS else [_column(line, rows)]


def _axis_across(line: str) -> str:
    """The axis of whose values each has the column; empty: none."""
    axis = ACROSS.match(line)
    return axis["axis"] if axis else ""


def _values(axis: str, rows: Rows) -> list:
    """The values of an axis in reading order, or as they are given if it has none.

    Lines that are no rows of evidence have their own axes, such as machines.
    """
    values = rows.frame.get(axis, pd.Series(dtype=object))
    has_order = axis in ORDERS or rows.stem
    return ordered(axis, values) if has_order else [*values.dropna().unique()]


def _require(expression: str, rows: Rows) -> None:
    for name in re.findall(r"[A-Za-z_]\w*", expression):
        if name not in rows.frame and rows.frame.columns.size:
            raise UserError(f"table: the rows have no column {name}")


def _column(line: str, rows: Rows) -> Quantity:
    parts = LINE.fullmatch(line)
    cell = parts["cell"] if parts else ""
    fields = [_parsed(**field.groupdict("")) for field in FIELD.finditer(cell)]
    if not 1 <= len(fields) <= 2:
        raise UserError(f"table: {line!r} is no column; {EXAMPLE}")
    header, unit = parts["header"], parts["unit"] or ""
    (owner, name, forms), *others = fields
    owner, name = ("", f"over.{name}") if owner == "over" else (owner, name)
    base = name.removeprefix("over.") if name.startswith("over.") else ""
    where = {_axis_of(owner, rows): owner} if owner else {}
    if name == "time":
        return replace(time(owner, header), where=where)
    if base:
        axis = "dtype" if base in DTYPES else "implementation"
        return over(owner, base, header, next(iter(forms), ""), axis)
    if name == "status":
        return replace(status(), header=header)
    for column in (name, *(second for _, second, _ in others)):
        _require(column, rows)
    if not owner and _has_text(rows, name):
        return text(name, header, *forms)
    numbers = iter(("{value}", "{second}"))
    more, words = {}, FIELD.sub(lambda _: next(numbers), cell)
    if words.endswith(INTERVAL):
        more, words = {end: _end(name, end) for end in ("low", "high")}, ""
        if "ratio" in forms:
            more = {end: (column, "factor") for end, column in more.items()}
    for _, second, second_forms in others:
        form = str if _has_text(rows, second) else "sig"
        more["second"] = (second, next(iter(second_forms), form))
    make = next((SIZES[form] for form in forms if form in SIZES), number)
    form = next((form for form in forms if form not in SIZES), "sig")
    quantity = make(name, header, form=form, unit=unit, words=words, **more)
    return replace(quantity, name=".".join(filter(None, (owner, name))), where=where)


def _parsed(owner: str, name: str, forms: str) -> tuple[str, str, list[str]]:
    """The owner of a field, its column, and its filters."""
    filters = forms.split(":")[1:]
    for form in filters:
        if form not in FILTERS and form not in SIZES:
            raise UserError(f"table: there is no filter {form}")
    return owner, name.strip(), filters


def _axis_of(value: str, rows: Rows) -> str:
    """The axis that has a value: the implementation, unless rows have it on another one."""
    axes = (axis for axis in OWNERS if axis in rows.frame and (rows.frame[axis] == value).any())
    return next(axes, "implementation")


def _end(column: str, end: str) -> str:
    """The column with an end of the interval: `low_ms` of `ms`, `sum_low_ms` of `sum_ms`."""
    time = re.fullmatch("(.*_)?ms", column)
    return f"{time[1] or ''}{end}_ms" if time else f"{column}_{end}"


def _has_text(rows: Rows, name: str) -> bool:
    return name in rows.frame and rows.frame[name].map(lambda value: isinstance(value, str)).any()
