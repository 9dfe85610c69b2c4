"""Rows of evidence as templates speak of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain

import pandas as pd
from pandas.errors import UndefinedVariableError

from lmperf.benchmarks import load
from lmperf.errors import UserError, meant
from lmperf.names import in_order, size_words
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having, ordered, parts, required, shared_value
from lmperf.reporting.gains import Gain, rows_over
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.sentences import paragraph
from lmperf.reporting.words import Count, Range


@dataclass(frozen=True)
class Rows:
    """Rows of one benchmark. What they say rests on those that hold; of none, they say nothing.

    Attributes:
        stem: the benchmark; empty for lines that are no rows of evidence.
    """

    evidence: Evidence
    stem: str
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, **axes) -> Rows:
        """The rows with these values; a list means any of them.

        Raises:
            UserError: the benchmark has no such axis or value, such a slip would drop a sentence.
        """
        for axis, value in axes.items():
            if axis not in self.frame and self.frame.columns.size:
                raise no_column(self._name, axis, self.frame.columns)
            values = {*value} if isinstance(value, list | tuple) else {value}
            if self.stem and axis in load(self.stem).identity:
                self._require_known(axis, values - {*self.frame[axis]})
        return self.kept(having(self.frame, **axes))

    def query(self, condition: str) -> Rows:
        """The rows for which a condition over columns holds, such as ``ms > 100``."""
        return self.kept(self.frame[self._eval(self.frame, condition).astype(bool)])

    def _eval(self, frame: pd.DataFrame, expression: str) -> pd.Series:
        """An expression over columns of these rows.

        Raises:
            UserError: it names what is no column.
        """
        # pandas looks at the name of every column that it gets.
        words = {*re.findall(r"\w+", expression)}
        try:
            return frame[[name for name in frame if name in words]].eval(expression)
        except UndefinedVariableError as error:
            name = re.search("'(.*)'", str(error))[1]
            raise no_column(self._name, name, frame.columns) from None

    @property
    def _name(self) -> str:
        return self.stem or "the table"

    def kept(self, frame: pd.DataFrame) -> Rows:
        """Rows of the same benchmark with another frame."""
        return Rows(self.evidence, self.stem, frame)

    def worded(self, **macros: Callable[[pd.Series], str]) -> Rows:
        """The rows with columns of text: what macros of a template say of each row."""
        rows = [row for _, row in self.frame.iterrows()]
        texts = {name: [_worded(macro, row) for row in rows] for name, macro in macros.items()}
        return self.kept(self.frame.assign(**texts))

    def _require_known(self, axis: str, values: set) -> None:
        """Raise UserError for a value that neither the benchmark nor its rows have."""
        there = self.evidence.rows(self.stem)[axis]
        for value in values - {*there} - declared_values(self.stem, axis):
            words = (
                meant(value, in_order(axis, there), "it has") if len(there) else "it has no rows"
            )
            raise UserError(f"{self.stem} has no rows with {axis}={value}; {words}")

    @cached_property
    def valid(self) -> Rows:
        """The rows that have a result."""
        return self.kept(self.frame[self.frame["state"].isna()])

    @property
    def drawn(self) -> pd.DataFrame:
        """The frame of the rows that a figure can show.

        Raises:
            NotMeasured: there is none.
        """
        return required(self.valid.frame, f"no rows of {self.stem} have a result")

    @cached_property
    def sound(self) -> pd.DataFrame:
        """The frame of the rows on which a sentence may rest.

        Raises:
            NotMeasured: there is none.
        """
        rows = self.frame[self.frame["holds"]] if "holds" in self.frame else self.frame
        return required(rows, f"no rows of {self.stem} hold")

    @property
    def one(self) -> pd.Series:
        """The only row that holds.

        Raises:
            NotMeasured: there is none.
            UserError: there are several.
        """
        rows = self.sound
        if len(rows) > 1:
            axes = load(self.stem).identity if self.stem else rows.columns
            differ = [name for name in axes if rows[name].astype(str).nunique() > 1]
            raise UserError(
                f"{len(rows)} rows of {self._name} hold, which differ in {', '.join(differ)}; "
                "choose one by .where"
            )
        return rows.iloc[0]

    def least(self, column: str) -> pd.Series:
        """Of the rows that hold the one with the least value of a column."""
        if column not in self.sound:
            raise no_column(self._name, column, self.sound.columns)
        values = required(self.sound[column].dropna(), f"no {column} of {self.stem} is known")
        return self.sound.loc[values.idxmin()]

    def by(self, *axes: str) -> list[tuple]:
        """(value, ..., rows) for each combination of values, in reading order."""
        every = parts(self.frame, *axes)
        return [(*values, self.kept(part)) for values, part in every]

    def values(self, axis: str) -> list:
        """The values of an axis in reading order."""
        return [value for value, _ in self.by(axis)]

    def over(self, base: str | None = None, **axes) -> Gain:
        """The speed-ups of these rows over others of the same cells.

        Args:
            base: the implementation to compare with; by default the same.
            axes: further values in which the other rows differ, as ``dtype="float32"``.
        """
        return Gain(self.pairs(base, **axes))

    def pairs(self, base: str | None = None, **axes) -> pd.DataFrame:
        """These rows with the columns of `gains.rows_over`; see `over`."""
        other = ({"implementation": base} if base else {}) | axes
        ours = {axis: self.only(axis) for axis in other}
        pairs = rows_over(self.evidence, self.stem, ours, other)
        return pairs[pairs.index.isin(self.frame.index)]

    def range(self, expression: str) -> Range:
        """The range of an expression over columns, such as ``flops / bytes``."""
        return of_rows(Range.of(self._eval(self.sound, expression)), self.sound)

    def only(self, axis: str):
        """The value that all rows share.

        Raises:
            NotMeasured: there is none.
        """
        return shared_value(self.frame[axis])

    def until(self, condition: str, axis: str) -> float | str | None:
        """The last value of an axis up to which a condition holds in every row; or None."""
        holds = self._eval(self.sound, condition).groupby(self.sound[axis]).all()
        holds = holds.reindex(ordered(axis, self.sound[axis])).cummin()
        return holds.index[holds][-1] if holds.any() else None

    def count(self, condition: str) -> Count:
        """In how many rows a condition over columns holds."""
        count = Count(int(self._eval(self.frame, condition).sum()), len(self.frame))
        return of_rows(count, self.frame)


@cache
def declared_values(stem: str, axis: str) -> frozenset:
    """The values of an axis in the grids, choices and names that a benchmark declares."""
    benchmark = load(stem)
    values = {*benchmark.phases, *(declared.name for declared in benchmark.implementations)}
    values |= {choice for other in benchmark.axes if other.name == axis for choice in other.choices}
    grids = chain.from_iterable(benchmark.grids.values())
    values |= set(chain.from_iterable(grid.get(axis, ()) for grid in grids))
    return frozenset(values | ({*map(size_words, values)} if axis == "size" else set()))


def no_column(whose: str, name: str, columns: Iterable[str]) -> UserError:
    """What rows lack, with the column that a slip may have meant."""
    near = meant(name, columns, "")
    words = f"; {near}" if near.endswith("?") else "; its CSV has its columns"
    return UserError(f"{whose} has no column {name}{words}")


def _worded(macro: Callable[[pd.Series], str], row: pd.Series) -> str | None:
    return paragraph(macro(row)) or None
