"""Ways to run a model (an implementation in a dtype), and columns that compare them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting.evidence import having
from lmperf.reporting.results import EMPTY, NOT_RECORDED, Cell
from lmperf.reporting.tables import SPEED_UPS, Quantity, number, over, time

STEM, STEP = "end_to_end", "train_step"
CELL = ["size", "context_length", "batch"]
EAGER, WHOLE, BLOCKS = "eager", "compiled", "compiled_blocks"
FLOAT32, TF32, AUTOCAST = "float32", "tf32", "autocast_bfloat16"
# Every implementation of a model is PyTorch, and a dtype may be that of the weights alone.
WORDS = {EAGER: "eager", WHOLE: "compiled", BLOCKS: "compiled by block", "bfloat16": "bf16 weights"}


class Way(NamedTuple):
    """One way to run the model."""

    implementation: str
    dtype: str

    @property
    def words(self) -> str:
        """The way for a reader: ``eager TF32``; ``bf16 autocast, compiled by block``."""
        numerics = dtype_words(self.dtype, CELL)
        if self.implementation == EAGER:
            return f"{EAGER} {numerics}"
        return f"{numerics}, {implementation_words(self.implementation)}"

    @property
    def name(self) -> str:
        """The way in the name of a column: ``eager.tf32``."""
        return f"{self.implementation}.{self.dtype}"

    @property
    def axes(self) -> dict[str, str]:
        return self._asdict()

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return having(frame, **self.axes)

    def time(self) -> Quantity:
        """The column of its times."""
        return replace(time(self.implementation, self.words), name=self.name, where=self.axes)

    def over(self, base: Way, header: str = "") -> Quantity:
        """The column of its speed-ups over another way."""
        dtypes = (self.dtype, base.dtype)
        column = over(self.implementation, base.implementation, header, dtype=dtypes)
        header = header or f"over {base.words}"
        note = f"{SPEED_UPS}; above one, faster than {base.words}."
        return replace(column, header=header, name=f"{self.name}.over.{base.name}", note=note)

    def first_calls(self) -> Quantity:
        """The column of the seconds that its first calls take: compilation and execution."""
        column = number("compile_s", "first calls", unit="s")
        where = self.axes | {"phase": STEP}
        return observed(replace(column, name=f"{self.name}.first_calls", where=where))


def ways_of(rows: pd.DataFrame) -> list[Way]:
    """The ways among rows, by dtype, then by implementation, in reading order."""
    names, dtypes = (in_order(axis, rows[axis]) for axis in ("implementation", "dtype"))
    found = set(zip(rows["implementation"], rows["dtype"], strict=True))
    return [Way(name, dtype) for dtype in dtypes for name in names if (name, dtype) in found]


def at_both(rows: pd.DataFrame, base: Way, others: Iterable[Way]) -> pd.DataFrame:
    """The rows of a base and of other ways, in cells and phases that both have."""
    both = pd.concat([way.rows(rows) for way in (base, *others)]).sort_index()
    is_base = both.index.isin(base.rows(rows).index)
    cells = [both[name] for name in (*CELL, "phase")]
    return both[pd.Series(is_base, both.index).groupby(cells).transform("nunique") > 1]


def beside(base: Way, others: Iterable[Way]) -> list[Quantity]:
    """The times of a base, then of each other way its time, speed-up and, if it compiles, cost."""
    columns = [base.time()]
    for way in others:
        columns += [way.time(), way.over(base)]
        if way.implementation != base.implementation:
            columns.append(way.first_calls())
    return columns


def of_steps(columns: Iterable[Quantity], italic: bool = False) -> list[Quantity]:
    """Columns of train steps, which leave it to the time to say why a step has no result.

    italic: whether they depend on the time, and are in italic where it is.
    """
    return [observed(replace(one, where={**one.where, "phase": STEP}), italic) for one in columns]


def observed(column: Quantity, italic: bool = False) -> Quantity:
    """A column beside a time, without reasons for missing results; see `of_steps`."""

    def cell(one: Cell) -> Cell:
        if one.value is None:
            return Cell(EMPTY, state=NOT_RECORDED)
        return one if italic else replace(one, waits=False)

    return replace(column, make=lambda evidence, rows: column.make(evidence, rows).map(cell))
