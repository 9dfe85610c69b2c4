"""Ways to run a model (an implementation in a dtype), and columns that compare them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from lmperf.names import dtype_words, implementation_words
from lmperf.reporting.results import EMPTY, NOT_RECORDED, Cell
from lmperf.reporting.tables import Quantity

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
    def axes(self) -> dict[str, str]:
        return self._asdict()


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
