"""Speed-up tables: one line a cell, one column per phase and candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_order, in_reading_order
from lmperf.reporting.numbers import EMPTY, dtype_words, implementation_words, phase_words
from lmperf.reporting.speedup import (
    NOT_IN_TURN,
    compared,
    comparison_name,
    interval_words,
)
from lmperf.reporting.tables import markdown, shared_axes, wide


@dataclass(frozen=True)
class Comparison:
    """The speed-ups of one benchmark over ``reference`` in ``column``, as Markdown tables.

    Attributes:
        evidence: of the machine.
        stem: the benchmark.
        column: ``implementation`` or ``dtype``.
        reference: the value of ``column`` that all others are compared with.
        cell: axes that make the lines; those with a single value go to the caption.
        name: what the caption begins with.
        headers: axis -> header.
    """

    evidence: MachineEvidence
    stem: str
    column: str
    reference: str
    cell: list[str]
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def tables(self) -> str:
        """One table per dtype (or, between dtypes, per implementation)."""
        other = "dtype" if self.column == "implementation" else "implementation"
        words = dtype_words if other == "dtype" else implementation_words
        frame = in_reading_order(self.evidence.frame(self.stem), first=self.cell)
        speed = compared(self.evidence, self.stem, self.column, self.reference)
        candidates = frame[frame[self.column] != self.reference]
        made = []
        for value in in_order(other, candidates[other]):
            rows = candidates[candidates[other] == value]
            cells = speed.words.loc[rows.index]
            made.append(self._table(rows, cells, speed.within(rows), words(value)))
        return "\n\n".join(text for text in made if text)

    def _table(
        self, rows: pd.DataFrame, cells: pd.Series, ratios: pd.DataFrame, within: str
    ) -> str:
        if (cells == EMPTY).all():
            return ""
        if cells.isin([EMPTY, NOT_IN_TURN]).all():
            return f"**{self.name}, {within}:** no ratio, since these rows were {NOT_IN_TURN}."
        constant, lines = shared_axes(rows, self.cell)
        labels = pd.Series([self._label(*pair) for pair in self._pairs(rows)], index=rows.index)
        table = wide(rows.assign(comparison=labels), cells, lines, "comparison")
        table = table[[*lines, *self._columns(rows)]].rename(columns=self.headers)
        interval = interval_words(ratios)
        brackets = f" In brackets: {interval}." if interval else ""
        over = "" if self.column == "dtype" else f" over {implementation_words(self.reference)}"
        return markdown(table, f"{self.name}{over}, {within}{constant}.{brackets}")

    def _pairs(self, rows: pd.DataFrame):
        return zip(rows["phase"], rows[self.column], strict=True)

    def _label(self, phase: str, value: str) -> str:
        if self.column == "dtype":
            return f"{phase_words(phase)}: {comparison_name('dtype', value, self.reference)}"
        return f"{phase_words(phase)}: {implementation_words(value)}"

    def _columns(self, rows: pd.DataFrame) -> list[str]:
        present = set(self._pairs(rows))
        return [
            self._label(phase, value)
            for phase in in_order("phase", rows["phase"])
            for value in in_order(self.column, rows[self.column])
            if (phase, value) in present
        ]
