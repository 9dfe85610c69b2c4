"""Columns of tables, as `tables.Layout` has them: what each shows of which rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd

from lmperf.names import axis_words, value_words
from lmperf.reporting.cells import NO_ROW, NOT_COMPARED, NOT_RECORDED, Cell, TableColumn
from lmperf.reporting.evidence import Evidence, cached_by_evidence
from lmperf.reporting.frames import having, matching, parts
from lmperf.reporting.gains import MIXED, PRECISE, Gain, rows_over
from lmperf.reporting.judging import NEUTRAL
from lmperf.reporting.rows import Rows
from lmperf.reporting.words import (
    EMPTY,
    FILTERS,
    absent,
    between,
    end,
    error,
    factor,
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
    lacking = {name: [default] * len(rows) for name, default in NEUTRAL.items() if name not in rows}
    rows, column = rows.assign(**lacking), []
    fields = {"value": (value, form), **further}
    columns = [rows[name] if name in rows else rows.eval(name) for name, _ in fields.values()]
    states = [rows[name] for name in NEUTRAL]
    for state, why, signs, waits, key, *values in zip(*states, *columns, strict=True):
        numbers, key = dict(zip(fields, values, strict=True)), None if absent(key) else key
        if not absent(state) or absent(numbers["value"]):
            column.append(Cell(why or EMPTY, state=state or NOT_RECORDED, row=key))
            continue
        texts = {name: fields[name][1](number) for name, number in numbers.items()}
        text = texts["value"] if any(map(absent, values)) else words.format(**texts)
        numbers = {name: None if absent(number) else number for name, number in numbers.items()}
        column.append(Cell(text, **numbers, marks=signs or (), waits=bool(waits), row=key))
    return pd.Series(column, rows.index, dtype=object)


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

    def of(self, form: Callable[[pd.DataFrame], pd.DataFrame]) -> Quantity:
        """The column of the rows in another form, or of others with the same labels."""
        return replace(self, make=lambda whole, rows: self.make(whole, form(rows)))


# The words of a cell that has a further number, by its name.
WORDS = {"low": "{value} ({low}-{high})", "second": "{value} / {second}", "": "{value}"}


def number(
    value: str,
    header: str = "",
    form="sig",
    unit: str = "",
    owner: str = "",
    note: str = "",
    words: str = "",
    **further,
) -> Quantity:
    """A column of numbers.

    Args:
        value: a column of the rows, or an expression over columns.
        form: the name of a filter (`words.FILTERS`), or a function.
        owner: the implementation whose rows it shows; by default those of all.
        words: see `cells`; by default with the interval, or with the second number.
        further: low, high, n or second -> an expression, or with its own form (expression, form).
    """
    pairs = [field if isinstance(field, tuple) else (field, form) for field in further.values()]
    pairs = [(expression, FILTERS.get(form, form)) for expression, form in pairs]
    further = dict(zip(further, pairs, strict=True))
    kind = next((name for name in WORDS if name in further), "")
    form, words = FILTERS.get(form, form), words or WORDS[kind]

    def make(_, rows: pd.DataFrame) -> pd.Series:
        return cells(rows, value, form, words, **further)

    where = {"implementation": owner} if owner else {}
    name = ".".join(filter(None, (owner, value)))
    return Quantity(header, name, make, where, unit, note)


def memory(
    value: str, header: str = "", unit: str = "MiB", form="sig", owner: str = "", **more
) -> Quantity:
    """A column of sizes. A late host or a low clock concerns times alone, so it shows neither.

    more: see `number`.
    """
    return number(value, header, form, unit, owner, **more).of(of_memory)


def of_memory(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without the signs that concern times alone."""
    if "signs" not in rows:
        return rows
    stale = rows["signs"].map(lambda signs: ("stale",) * ("stale" in (signs or ())))
    return rows.assign(waits=False, signs=stale)


def known_size(
    value: str, header: str = "", unit: str = "MiB", form="sig", owner: str = "", **more
) -> Quantity:
    """A column of sizes that rows without a result may have as well, such as predicted ones.

    more: see `number`.
    """
    shown = memory(value, header, unit, form, owner, **more)
    return shown.of(lambda rows: rows.assign(state=None, words=""))


def of_others(shown: Quantity, others: pd.DataFrame, names: Sequence[str]) -> Quantity:
    """A column of other rows, with their signs: of those with the same values of some columns."""
    return shown.of(lambda rows: matching(rows, others, names).dropna(subset="key"))


def largest_error() -> Quantity:
    """The error of each row beside its bound, also of those that failed their check."""
    return known_size("max_error", "largest error / bound", "", error, second="error_bound")


def time(owner: str = "", header: str | None = None) -> Quantity:
    """Times in ms with their intervals."""
    if header is None:
        header = value_words("implementation", owner) if owner else "time"
    ends = {"low": "low_ms", "high": "high_ms"}
    return number("ms", header, sig, "ms", owner, note="Times: median (interval).", **ends)


def rate(owner: str = "") -> Quantity:
    """TFLOP/s with the share of the peak matmul."""
    header = value_words("implementation", owner) if owner else ""
    more = {"words": "{value} ({second})", "second": ("share", percent)}
    note = "Rates: from the median time; in brackets of the peak matmul in single calls."
    return number("tflops", header, sig, "TFLOP/s", owner, note=note, **more)


def over(
    owner: str, base: str, header: str | None = None, form: str = "", axis: str = "implementation"
) -> Quantity:
    """Speed-ups ``1.42x (1.38-1.45)``, with ``same`` if they show none; a dash without a base.

    What a row is compared with may differ from line to line, unless there is an owner: a column
    `base` of the rows has the values in which the other row differs, as
    ``{"implementation": "eager"}``, or None.

    Args:
        owner: the implementation whose speed-ups it shows; empty: those of all.
        base: the value of an axis that rows without a column `base` are compared with.
        form: the name of a filter, for cells without interval and verdict.
    """

    def make(whole: Rows, rows: pd.DataFrame) -> pd.Series:
        # A column for one implementation says in its header what it is compared with.
        evidence, stem, bases = whole.evidence, whole.stem, None if owner else rows.get("base")
        if bases is None:
            bases = rows[axis].map(lambda own: {axis: base} if own != base else None)
        bases = bases.dropna().map(lambda axes: tuple(axes.items()))
        cells = {label: Cell(EMPTY, state=NO_ROW) for label in rows.index.difference(bases.index)}
        for axes, labels in bases.groupby(bases).groups.items():
            # The values of the evidence, which a line of the table may name otherwise.
            for values, part in parts(evidence.rows(stem).loc[labels], *dict(axes)):
                ours = dict(zip(dict(axes), values, strict=True))
                pairs = speedups(evidence, stem, ours, dict(axes))
                cells |= {label: pairs[label] for label in part.index if label in pairs}
        if form:
            cells = {label: _without_interval(cell, FILTERS[form]) for label, cell in cells.items()}
        return pd.Series(cells, dtype=object)

    header = f"over {value_words(axis, base)}" if header is None else header
    name = ".".join(filter(None, (owner, "over", base)))
    where = {"implementation": owner} if owner else {}
    note = f"Speed-ups: above one, the {'first' if owner else 'line'} is faster."
    return Quantity(header, name, make, where, note="" if form else note)


def _without_interval(cell: Cell, form: Callable) -> Cell:
    return cell if cell.value is None else replace(cell, words=form(cell.value))


@cached_by_evidence
def speedups(evidence: Evidence, stem: str, ours: Mapping, base: Mapping) -> dict[int, Cell]:
    """Label of each row of `gains.rows_over` -> its cell; several tables show the same pairs."""
    pairs = rows_over(evidence, stem, ours, base)[SPEEDUP]
    return {row.Index: speedup(row) for row in pairs.itertuples()}


def speedup(row) -> Cell:
    """A cell ``1.42x (1.38-1.45)``, with its verdict if that is `same` or `unresolved`.

    row: a row of `gains.rows_over` as a named tuple.
    """
    if absent(row.ratio):
        state = NOT_COMPARED if row.why == "not compared" else row.why
        return Cell(row.why, state=NOT_RECORDED if row.why == EMPTY else state, row=row.key)
    text = f"{between(row.low, row.ratio, row.high)}x ({end(row.low)}-{end(row.high)})"
    text += f" {row.verdict}" if row.verdict in (SAME, UNRESOLVED) and not row.waits else ""
    ends = [None if absent(number) else number for number in (row.low, row.high)]
    more = {"marks": row.signs, "waits": bool(row.waits), "row": row.key, "base": row.key_base}
    return Cell(text, row.ratio, *ends, int(row.rounds), verdict=row.verdict, **more)


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
    ends = f"({factor(low)}-{factor(high)}, {cells})" if cells > 1 else ""
    verdict = gain.verdict if gain.verdict in (SAME, MIXED, UNRESOLVED) else ""
    words = " ".join(filter(None, (ratio(gain.mean), ends, verdict)))
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


def across(axis: str, values: Sequence, *columns: Quantity) -> list[Quantity]:
    """The columns for each value of an axis, whose words come first in the header."""
    return [
        replace(
            column,
            header=", ".join(filter(None, (str(value_words(axis, value)), column.header))),
            name=f"{value}.{column.name}",
            where={**column.where, axis: value},
        )
        for value in values
        for column in columns
    ]
