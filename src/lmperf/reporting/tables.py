"""Tables as lines x columns over judged rows.

`Written` is the form that a template gives a table; `Layout` makes one for each combination of
values of the axes that split it. A column has a cell for each of its rows of evidence; rows of one
line stand side by side. Axes that all lines share go to the caption, columns in which nothing ran
go, and a note says how the cells of its columns are to be read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from lmperf.dtypes import DTYPES
from lmperf.errors import UserError
from lmperf.names import IMPLEMENTATIONS, ORDERS, axis_words, value_words
from lmperf.reporting.cells import (
    NO_ROW,
    NOT_COMPARED,
    NOT_RECORDED,
    Cell,
    Table,
    TableColumn,
)
from lmperf.reporting.evidence import (
    NEUTRAL,
    Evidence,
    cached_by_evidence,
    having,
    matching,
    ordered,
    parts,
    sorted_for_reading,
)
from lmperf.reporting.gains import MIXED, PRECISE, Gain, rows_over
from lmperf.reporting.numbers import bare
from lmperf.reporting.rows import Rows
from lmperf.reporting.sentences import CLOSE, ENDED, complete, said
from lmperf.reporting.words import (
    EMPTY,
    FILTERS,
    absent,
    end,
    error,
    listed,
    percent,
    ratio,
    sig,
)
from lmperf.statistics import SAME, UNRESOLVED

# The columns of pairs of rows that a cell with a speed-up shows.
SPEEDUP = ["ratio", "low", "high", "rounds", "verdict", "why", "signs", "waits", "key", "key_base"]
NOTHING = (None, NO_ROW, "unsupported", NOT_RECORDED)


def cells(
    rows: pd.DataFrame, value: str, form: Callable, words: str = "{value}", **further
) -> pd.Series:
    """A cell for each row: its value in words, or why it has none, with the signs of the row.

    value: a column, or an expression over columns. words: a format over `value` and `further`.
    further: low, high, n or second -> (expression, form).
    """
    lacking = {name: [one] * len(rows) for name, one in NEUTRAL.items() if name not in rows}
    rows, made = rows.assign(**lacking), []
    expressions = {"value": (value, form), **further}
    numbers = {
        name: rows[of] if of in rows else rows.eval(of) for name, (of, _) in expressions.items()
    }
    known = [rows[name] for name in NEUTRAL]
    for state, why, signs, waits, key, *found in zip(*known, *numbers.values(), strict=True):
        found, key = dict(zip(numbers, found, strict=True)), None if absent(key) else key
        if not absent(state) or absent(found["value"]):
            made.append(Cell(why or EMPTY, state=state or NOT_RECORDED, row=key))
            continue
        said = {name: expressions[name][1](one) for name, one in found.items()}
        text = words.format(**said) if not any(map(absent, found.values())) else said["value"]
        found = {name: None if absent(one) else one for name, one in found.items()}
        made.append(Cell(text, **found, marks=signs or (), waits=bool(waits), row=key))
    return pd.Series(made, rows.index, dtype=object)


@dataclass(frozen=True)
class Quantity:
    """A column of a table: what it shows of which rows.

    Attributes:
        make: all rows of a table and some of them -> the cells of these, labelled like them.
        where: values of the rows that it shows.
        note: how to read the cells.
    """

    header: str
    name: str
    make: Callable[[Rows, pd.DataFrame], pd.Series]
    where: Mapping = field(default_factory=dict)
    unit: str = ""
    note: str = ""

    def column(
        self, whole: Rows, rows: pd.DataFrame, lines: Mapping, empty: Cell
    ) -> TableColumn | None:
        """The column for these rows, or None if nothing ran in it.

        whole: all rows of the table. lines: label of a row -> the line in which it stands.
        """
        shown = having(rows, **self.where)
        by_line = {lines[label]: cell for label, cell in self.make(whole, shown).items()}
        if all(cell.value is None and cell.state in NOTHING for cell in by_line.values()):
            return None
        header = f"{self.header} ({self.unit})" if self.unit and self.header else self.header
        cells = tuple(by_line.get(line, empty) for line in dict.fromkeys(lines.values()))
        return TableColumn(self.name, header or self.unit, cells, self.unit)

    def mapped(self, form: Callable[[Cell], Cell]) -> Quantity:
        """The column with each cell in another form."""

        def make(whole: Rows, rows: pd.DataFrame) -> pd.Series:
            return self.make(whole, rows).map(form)

        return replace(self, make=make)


# The words of a cell that has a further number, by its name.
WORDS = {"low": "{value} ({low}-{high})", "second": "{value} / {second}", "": "{value}"}


def number(
    value: str,
    header: str = "",
    form="sig",
    unit: str = "",
    of: str = "",
    note: str = "",
    words: str = "",
    **further,
) -> Quantity:
    """A column of numbers.

    Args:
        value: a column of the rows, or an expression over columns.
        form: the name of a filter (`words.FILTERS`), or a function.
        of: the implementation whose rows it shows; by default those of all.
        words: see `cells`; by default with the interval, or with the second number.
        further: low, high, n or second -> an expression, or with its own form (expression, form).
    """
    further = {n: one if isinstance(one, tuple) else (one, form) for n, one in further.items()}
    further = {n: (expression, FILTERS.get(f, f)) for n, (expression, f) in further.items()}
    kind = next((name for name in WORDS if name in further), "")
    form, words = FILTERS.get(form, form), words or WORDS[kind]

    def make(_, rows: pd.DataFrame) -> pd.Series:
        return cells(rows, value, form, words, **further)

    where = {"implementation": of} if of else {}
    name = ".".join(filter(None, (of, value)))
    return Quantity(header, name, make, where, unit, note)


def memory(
    value: str, header: str = "", unit: str = "MiB", form="sig", of: str = "", **more
) -> Quantity:
    """A column of sizes. A late host or a low clock concerns times alone, so it shows neither.

    more: see `number`.
    """
    shown = number(value, header, form, unit, of, **more)
    return replace(shown, make=lambda whole, rows: shown.make(whole, of_memory(rows)))


def of_memory(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without the signs that concern times alone."""
    if "signs" not in rows:
        return rows
    stale = rows["signs"].map(lambda signs: tuple(one for one in signs or () if one == "stale"))
    return rows.assign(waits=False, signs=stale)


def known(
    value: str, header: str = "", unit: str = "MiB", form="sig", of: str = "", **more
) -> Quantity:
    """A column of sizes that rows without a result may have as well, such as predicted ones.

    more: see `number`.
    """
    shown = memory(value, header, unit, form, of, **more)
    unjudged = {"state": None, "words": ""}
    return replace(shown, make=lambda whole, rows: shown.make(whole, rows.assign(**unjudged)))


def of_others(shown: Quantity, others: pd.DataFrame, names: Sequence[str]) -> Quantity:
    """A column of other rows, with their signs: of those with the same values of some columns."""

    def make(whole: Rows, rows: pd.DataFrame) -> pd.Series:
        found = matching(rows, others, names)
        return shown.make(whole, found[found["key"].notna()])

    return replace(shown, make=make)


def largest_error() -> Quantity:
    """The error of each row beside its bound, also of those that failed their check."""
    return known("max_error", "largest error / bound", "", error, second="error_bound")


def time(of: str = "", header: str | None = None) -> Quantity:
    """Times in ms with their intervals."""
    if header is None:
        header = value_words("implementation", of) if of else "time"
    ends = {"low": "low_ms", "high": "high_ms"}
    return number("ms", header, sig, "ms", of, note="Times: median (interval).", **ends)


def rate(of: str = "") -> Quantity:
    """TFLOP/s with the share of the peak matmul."""
    header = value_words("implementation", of) if of else ""
    more = {"words": "{value} ({second})", "second": ("share", percent)}
    note = "Rates: from the median time; in brackets of the peak matmul in single calls."
    return number("tflops", header, sig, "TFLOP/s", of, note=note, **more)


def over(ours: str, base: str, header: str = "") -> Quantity:
    """Speed-ups ``1.42x (1.38-1.45)`` of an implementation, with ``same`` if they show none.

    base: the implementation to compare with.
    """
    shown = over_base(
        header or f"over {value_words('implementation', base)}",
        f"{ours}.over.{base}",
        implementation=base,
    )
    note = "Speed-ups: above one, the first is faster."
    return replace(shown, where={"implementation": ours}, note=note)


def over_base(header: str, name: str, form: str = "", **base) -> Quantity:
    """Speed-ups over rows that differ from line to line; a dash where there is no base.

    The column `base` of the rows has the values in which the other row differs, as
    ``{"implementation": "eager"}``, or None.
    form: the name of a filter, for cells without interval and verdict.
    base: the value of one axis that all others are compared with, instead of the column.

    Raises:
        UserError: several axes are given, or none and the rows have no column `base`.
    """
    if len(base) > 1:
        raise UserError(f"over_base: {listed(base)}; give one axis")

    def make(whole: Rows, rows: pd.DataFrame) -> pd.Series:
        evidence, stem, bases = whole.evidence, whole.stem, rows.get("base")
        if bases is None and not base:
            raise UserError(
                "over_base: the rows have no column base; give an axis, as dtype=float32"
            )
        for axis, value in base.items():
            bases = rows[axis].map(lambda one, value=value: base if one != value else None)
        bases = bases.dropna().map(lambda of: tuple(of.items()))
        made = {label: Cell(EMPTY, state=NO_ROW) for label in rows.index.difference(bases.index)}
        for axes, labels in bases.groupby(bases).groups.items():
            # The values of the evidence, which a line of the table may name otherwise.
            for values, part in parts(evidence.rows(stem).loc[labels], *dict(axes)):
                ours = dict(zip(dict(axes), values, strict=True))
                found = speedups(evidence, stem, ours, dict(axes))
                made |= {label: found[label] for label in part.index if label in found}
        if form:
            made = {label: _without_interval(cell, FILTERS[form]) for label, cell in made.items()}
        return pd.Series(made, dtype=object)

    note = "Speed-ups: above one, the line is faster."
    return Quantity(header, name, make, note="" if form else note)


def _without_interval(cell: Cell, form: Callable) -> Cell:
    return cell if cell.value is None else replace(cell, words=form(cell.value))


@cached_by_evidence
def speedups(evidence: Evidence, stem: str, ours: Mapping, base: Mapping) -> dict[int, Cell]:
    """Label of each row of `gains.rows_over` -> its cell; several tables show the same pairs."""
    found = rows_over(evidence, stem, ours, base)[SPEEDUP]
    return {row.Index: speedup(row) for row in found.itertuples()}


def speedup(row) -> Cell:
    """A cell ``1.42x (1.38-1.45)``, with its verdict if that is `same` or `unresolved`.

    row: a row of `gains.rows_over` as a named tuple.
    """
    if absent(row.ratio):
        state = NOT_COMPARED if row.why == "not compared" else row.why
        return Cell(row.why, state=NOT_RECORDED if row.why == EMPTY else state, row=row.key)
    text = f"{ratio(row.ratio)} ({end(row.low)}-{end(row.high)})"
    said = f" {row.verdict}" if row.verdict == SAME and not row.waits else ""
    said = " unresolved" if row.verdict == UNRESOLVED and not row.waits else said
    ends = [None if absent(one) else one for one in (row.low, row.high)]
    more = {"marks": row.signs, "waits": bool(row.waits), "row": row.key, "base": row.key_base}
    return Cell(text + said, row.ratio, *ends, int(row.rounds), verdict=row.verdict, **more)


def mean(base: str) -> Quantity:
    """Geometric means over cells, ``1.07x (0.97-1.18, 12)``, of rows that have a ``gain``."""
    header = f"over {value_words('implementation', base)}"
    note = (
        "Geometric mean (smallest to largest, number of cells) over cells that are resolved or "
        f"known to within {percent(PRECISE, 0)}; below one the other is faster; mixed: they differ."
    )
    where = {"implementation": base}
    make = partial(_mapped, "gain", _mean)
    return Quantity(header, f"mean.over.{base}", make, where, note=note)


def _mean(gain: Gain) -> Cell:
    low, _, high = gain.range
    cells = len(gain.rows)
    ends = f"({ratio(low)[:-1]}-{ratio(high)[:-1]}, {cells})" if cells > 1 else ""
    said = gain.verdict if gain.verdict in (SAME, MIXED, UNRESOLVED) else ""
    words = " ".join(filter(None, (ratio(gain.mean), ends, said)))
    return Cell(words, gain.mean, low, high, cells, verdict=gain.verdict)


def text(column: str, header: str | None = None, form: str = "") -> Quantity:
    """A column of text; form: the name of a filter."""

    def cell(value) -> Cell:
        if absent(value):
            return Cell(EMPTY, state=NOT_RECORDED)
        return Cell(str(FILTERS[form](value) if form else value), value)

    shown = axis_words(column) if header is None else header
    return Quantity(shown, column, partial(_mapped, column, cell))


def status() -> Quantity:
    """Whether a row is ok, or why it has no result."""

    def cell(words: str) -> Cell:
        return Cell(words or "ok", words or "ok")

    return Quantity("status", "status", partial(_mapped, "words", cell))


def _mapped(column: str, cell: Callable[..., Cell], _, rows: pd.DataFrame) -> pd.Series:
    """A cell for each value of a column."""
    return rows[column].map(cell)


# A column as a template writes it: `SDPA, compiled (ms): {sdpa.ms:sig} (interval)`.
UNIT = "ms|µs|s|W|[MG]iB|GB/s|TFLOP/s|MHz|%|bytes an element"
LINE = re.compile(rf"(?P<header>.*?)(?: \((?P<unit>{UNIT})\))?: *(?P<cell>{{.*)")
FIELD = re.compile(r"\{(?:(?P<of>\w+)\.)?(?P<name>[^{}:]+)(?P<forms>(?::\w+)*)\}")
AXIS = re.compile(r"(?P<header>[^{}]*)\{(?P<name>\w+)\}")
ACROSS = re.compile(r"\{(?P<axis>\w+)\}(?:, )?")
INTERVAL, ELLIPSIS, SEPARATOR = " (interval)", "{...}", " | "
OWNERS = ("implementation", "phase", "dtype", "load")
SIZES = {"memory": memory, "known": known}
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
    axes = {one["name"]: one["header"].strip(" :") for one in AXIS.finditer(fields[0])}
    for name in axes:
        _require(name, rows)
    title = next((line.removeprefix("## ") for line in above if line.startswith("## ")), "")
    caption = " ".join(line for line in above if not line.startswith("## "))
    lines_of_columns = [one for line in fields[1:] for one in line.split(SEPARATOR) if one]
    columns = [*_columns(lines_of_columns, rows, others)]
    return Written(title, caption, axes, columns, said("\n".join(lines[end:])))


def _columns(lines: Sequence[str], rows: Rows, others) -> Iterator[Quantity]:
    """The columns of lines; adjacent ones across an axis stand together for each of its values."""
    axis_of = lambda line: found["axis"] if (found := ACROSS.match(line)) else ""  # noqa: E731
    for axis, adjacent in itertools.groupby(lines, axis_of):
        if axis:
            _require(axis, rows)
            within = [ACROSS.sub("", line, count=1) for line in adjacent]
            yield from across(axis, _values(axis, rows), *_columns(within, rows, others))
            continue
        for line in adjacent:
            yield from others if line == ELLIPSIS else [_column(line, rows)]


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
    found = LINE.fullmatch(line)
    fields = [one.groupdict("") for one in FIELD.finditer(found["cell"])] if found else []
    if not 1 <= len(fields) <= 2:
        raise UserError(f"table: {line!r} is no column; {EXAMPLE}")
    header, unit, cell = found["header"], found["unit"] or "", found["cell"]
    (of, name, forms), *others = [_parsed(**one) for one in fields]
    of, name = ("", f"over.{name}") if of == "over" else (of, name)
    base = name.removeprefix("over.") if name.startswith("over.") else ""
    where = {_axis_of(of, rows): of} if of else {}
    if name == "time":
        return replace(time(of, header), where=where)
    if base:
        form = next(iter(forms), "")
        axes = (
            {} if "base" in rows.frame else {"dtype" if base in DTYPES else "implementation": base}
        )
        return over(of, base, header) if of else over_base(header, name, form, **axes)
    if name == "status":
        return replace(status(), header=header)
    for column in (name, *(second for _, second, _ in others)):
        _require(column, rows)
    if not of and _has_text(rows, name):
        return text(name, header, *forms)
    numbers = iter(("{value}", "{second}"))
    more, words = {}, FIELD.sub(lambda _: next(numbers), cell)
    if words.endswith(INTERVAL):
        ends = {end: _end(name, end) for end in ("low", "high")}
        more = {end: (of, "factor") if "ratio" in forms else of for end, of in ends.items()}
        words = ""
    for _, second, second_forms in others:
        form = str if _has_text(rows, second) else "sig"
        more["second"] = (second, next(iter(second_forms), form))
    make = next((SIZES[form] for form in forms if form in SIZES), number)
    form = next((form for form in forms if form not in SIZES), "sig")
    made = make(name, header, form=form, unit=unit, words=words, **more)
    return replace(made, name=".".join(filter(None, (of, name))), where=where)


def _parsed(of: str, name: str, forms: str) -> tuple[str, str, list[str]]:
    """The owner of a field, its column, and its filters."""
    filters = forms.split(":")[1:]
    for one in filters:
        if one not in FILTERS and one not in SIZES:
            raise UserError(f"table: there is no filter {one}")
    return of, name.strip(), filters


def _axis_of(value: str, rows: Rows) -> str:
    """The axis that has a value: the implementation, unless rows have it on another one."""
    axes = (axis for axis in OWNERS if axis in rows.frame and (rows.frame[axis] == value).any())
    return next(axes, "implementation")


def _end(column: str, end: str) -> str:
    """The column with an end of the interval: `low_ms` of `ms`, `sum_low_ms` of `sum_ms`."""
    found = re.fullmatch("(.*_)?ms", column)
    return f"{found[1] or ''}{end}_ms" if found else f"{column}_{end}"


def _has_text(rows: Rows, name: str) -> bool:
    return name in rows.frame and rows.frame[name].map(lambda value: isinstance(value, str)).any()


def across(axis: str, values: Sequence, *columns: Quantity) -> list[Quantity]:
    """The columns for each value of an axis, whose words come first in the header."""
    return [
        replace(
            one,
            header=", ".join(filter(None, (str(value_words(axis, value)), one.header))),
            name=f"{value}.{one.name}",
            where={**one.where, axis: value},
        )
        for value in values
        for one in columns
    ]


@dataclass(frozen=True)
class Layout:
    """How rows become tables, one for each combination of values of `split`.

    Rows of evidence are shown in reading order, other lines as they are given.

    Attributes:
        lines: the axes of a line.
        what: the beginning of the captions.
        words: value -> words, where tables use others than `lmperf.names`.
        empty: the words of a cell without a row.
        heads: axis -> its header, where the table uses another than `lmperf.names`.
    """

    lines: Sequence[str]
    columns: Sequence[Quantity]
    split: Sequence[str] = ()
    what: str = ""
    note: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    empty: str = EMPTY
    heads: Mapping[str, str] = field(default_factory=dict)

    def tables(self, rows: Rows) -> list[Table]:
        """The tables of these rows; none in which nothing ran."""
        every = parts(rows.frame, *self.split, ordered=bool(rows.stem)) if len(rows) else ()
        tables = [self._table(rows, part) for _, part in every]
        return [table for table in tables if table]

    def _table(self, rows: Rows, part: pd.DataFrame) -> Table | None:
        """The table of the rows that share the values of `split`; None if nothing ran."""
        axes = [name for name in self.lines if name not in self.split]
        part = sorted_for_reading(part, axes) if rows.stem else part
        varying = [n for n in axes if part[n].nunique(dropna=False) > 1] or axes[:1]
        lines = list(part[varying].itertuples(index=False, name=None))
        line_of = dict(zip(part.index, lines, strict=True))
        nothing = Cell(self.empty, state=NO_ROW)
        columns = [one.column(rows, part, line_of, nothing) for one in self.columns]
        if not any(columns):
            return None
        of_lines = dict(zip(varying, zip(*dict.fromkeys(lines), strict=True), strict=True))
        heads = [self._head(name, values, part) for name, values in of_lines.items()]
        shared = {name: part[name].iloc[0] for name in axes if name not in varying}
        shared = {name: value for name, value in shared.items() if not absent(value)}
        named = {name: part[name].iloc[0] for name in self.split} | shared
        words = [
            self.words.get(value) or _axis(name, value, part.columns)
            for name, value in named.items()
        ]
        caption = ", ".join(filter(None, (self.what, *words)))
        # The name of an implementation that someone brought stays as its author writes it.
        first, value = next(iter(named.items()), ("", None))
        if self.what or first != "implementation" or value in IMPLEMENTATIONS:
            caption = caption[:1].upper() + caption[1:]
        notes = [
            one.note
            for one, column in zip(self.columns, columns, strict=True)
            if column and any(cell.value is not None for cell in column.cells)
        ]
        note = " ".join(filter(None, dict.fromkeys([self.note, *notes])))
        return Table(caption, (*heads, *filter(None, columns)), note, shared)

    def _head(self, name: str, values: Iterable, part: pd.DataFrame) -> TableColumn:
        """The column of an axis."""
        cells = tuple(_text(name, value, self.words, part.columns) for value in values)
        return TableColumn(name, self.heads.get(name, axis_words(name)), cells, is_axis=True)


def _axis(name: str, value, axes: Collection[str]) -> str:
    """An axis and its value in a caption: ``batch 4``, ``bf16``, ``CUDA graph``."""
    if absent(value) or value == "":
        return ""
    if isinstance(value, bool | np.bool_):
        return axis_words(name) if value else ""
    said = _plain(value_words(name, value, axes))
    return said if name in ("dtype", "implementation", "phase") else f"{axis_words(name)} {said}"


def _text(name: str, value, words: Mapping[str, str], axes: Collection[str]) -> Cell:
    if absent(value):
        return Cell(EMPTY, state=NO_ROW)
    if isinstance(value, bool | np.bool_):
        return Cell(("no", "yes")[int(value)], bool(value))
    return Cell(words.get(value) or _plain(value_words(name, value, axes)), value)


def _plain(value) -> str:
    if isinstance(value, int | float | np.number):
        return f"{value:,.12g}"
    return str(value)
