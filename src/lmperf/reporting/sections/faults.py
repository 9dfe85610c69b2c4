"""What is wrong with custom implementations: their rows without a result, as findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import axis_words, implementation_words, in_order, phase_words, value_words
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having
from lmperf.reporting.judging import WITHHELD
from lmperf.reporting.sections import Section
from lmperf.reporting.words import TENSORS, Count, absent, cell_words, listed

# The reason of a row whose result is wrong: the tensor, and what it is compared with.
WRONG = re.compile(r"(?P<tensor>.+) (?:differs from .+|is not finite)")
NAMED_VALUES = 3  # a condition with more values of an axis is not said


class Faults(Section):
    """The rows of custom implementations that have no result, in a few kinds."""

    def each(self, *stems: str) -> list[Fault]:
        """The faults in some benchmarks; by default in all."""
        named = stems or [stem for stem in self.evidence.stems if load(stem).takes]
        return [
            fault
            for stem in named
            for name in self.evidence.subjects(stem)
            for fault in self._of(stem, name)
        ]

    def _of(self, stem: str, name: str) -> Iterator[Fault]:
        """A fault for each state and, where a result is wrong in some rows only, reason."""
        rows = ran(having(self.evidence.rows(stem), implementation=name))
        failed = rows[rows["state"].notna()]
        for state, of_state in failed.groupby("state", sort=False):
            reasons = of_state["reason"].fillna("")
            kinds = reasons.mask(reasons.str.fullmatch(WRONG.pattern), "wrong")
            for _, part in of_state.groupby(kinds, sort=False):
                yield Fault(self.evidence, stem, name, str(state), part, rows)


def ran(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of an implementation without phases that it does not have, if it has any."""
    runs = (rows["state"] != "unsupported").groupby(rows["phase"]).transform("any")
    return rows[runs] if runs.any() else rows


@dataclass(frozen=True)
class Fault:
    """Rows of a custom implementation in a benchmark that have no result for one reason.

    Attributes:
        state: that of all its rows; see `evidence.judged`.
        rows: those without a result.
        every: all rows of the implementation in this benchmark.
    """

    evidence: Evidence
    stem: str
    name: str
    state: str
    rows: pd.DataFrame
    every: pd.DataFrame

    @cached_property
    def worst(self) -> pd.Series:
        """The row whose error is furthest beyond its bound; the first if none has an error."""
        excess = self.rows["max_error"] / self.rows["error_bound"]
        return self.rows.loc[excess.idxmax() if excess.notna().any() else self.rows.index[0]]

    @property
    def words(self) -> str:
        """What its author calls the implementation."""
        return implementation_words(self.name)

    @property
    def is_wrong(self) -> bool:
        """Whether results differ from a reference by an error that is known."""
        is_known = not (absent(self.worst["max_error"]) or absent(self.worst["error_bound"]))
        return self.state == "failed_check" and is_known and bool(self.tensors)

    @property
    def is_withheld(self) -> bool:
        """Whether rows were timed, but their times are not shown."""
        return self.state in WITHHELD

    @cached_property
    def tensors(self) -> list[str]:
        """The tensors that are furthest beyond their bounds, each in some row."""
        matches = [WRONG.fullmatch(reason) for reason in self.rows["reason"].dropna()]
        names = dict.fromkeys(match["tensor"] for match in matches if match)
        return [TENSORS.get(name, name) for name in names]

    @property
    def reason(self) -> str | None:
        """Why the first of its rows has no result, if that is known."""
        reasons = self.rows["reason"].dropna()
        return None if reasons.empty else reasons.iloc[0].rstrip(".")

    @property
    def cell(self) -> str:
        """The cell of the worst row in words."""
        return cell_words(self.worst, [axis.name for axis in load(self.stem).axes])

    @property
    def page(self) -> str:
        """The name of the page with its rows."""
        return load(self.stem).section or self.stem

    @property
    def title(self) -> str:
        """The title of that page."""
        return load(self.page).title

    @property
    def state_words(self) -> str:
        """The state of its rows in words."""
        return self.rows["words"].iloc[0]

    @property
    def count(self) -> Count:
        return Count(len(self.rows), len(self.every))

    @property
    def where(self) -> str | None:
        """What its rows share and no other row of it has, such as `for causal inputs`.

        None if nothing tells them apart, or if it has no other rows.
        """
        others = self.every.drop(self.rows.index)
        axes = [axis.name for axis in load(self.stem).axes] + ["phase"]
        here = {axis: in_order(axis, self.rows[axis]) for axis in axes}
        apart = [axis for axis in axes if here[axis] and {*here[axis]}.isdisjoint(others[axis])]
        conditions = [_condition(axis, here[axis], others) for axis in apart] if len(others) else []
        return ", ".join(filter(None, conditions)) or None


def _condition(axis: str, values: list, others: pd.DataFrame) -> str:
    """Values of an axis in words, such as `at length 64 and 128`; empty for many values."""
    if axis == "causal":
        return "for causal inputs" if values == [True] else "without a causal mask"
    if axis == "cuda_graph":
        return "in a CUDA graph" if values == [True] else "without a CUDA graph"
    if axis == "phase":
        return f"in {listed(map(phase_words, values))}"
    if axis == "dtype":
        return f"in {listed(value_words(axis, value, others.columns) for value in values)}"
    is_number = all(isinstance(value, int | float) for value in values)
    if is_number and len(values) > 1 and min(values) > others[axis].max():
        return f"from {axis_words(axis)} {min(values):,} on"
    if is_number and len(values) > 1 and max(values) < others[axis].min():
        return f"up to {axis_words(axis)} {max(values):,}"
    if len(values) > NAMED_VALUES:
        return ""
    texts = [f"{value:,}" if is_number else str(value_words(axis, value)) for value in values]
    return f"at {axis_words(axis)} {listed(texts)}"
