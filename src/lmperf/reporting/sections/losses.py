"""Losses of training runs: how far bf16 weights end outside the range of float32 weights.

The graph with float32 weights does not count in that range, since its gradients are bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting.calculations.steps import CELL, FLOAT32, NARROW, WAYS
from lmperf.reporting.columns import Quantity, number, of_others
from lmperf.reporting.frames import having, required
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured, Range, signed_percent
from lmperf.transformer.rungs import IN_FLOAT8, RUNGS

STEM = "ladder_loss"
NEAR = 0.01  # a loss within this fraction of the range with float32 weights is near it
SHOWN = 0.0005  # less of it reads as 0.0 %
# Of the runs with float32 weights the first and the usual one; the range has all of them.
_NARROW_RUNGS = [rung.name for rung in RUNGS if rung.dtype == NARROW]
_IN_FLOAT8 = [rung.name for rung in IN_FLOAT8]
SHOWN_RUNGS = (FLOAT32, "autocast", "graph", *_NARROW_RUNGS, *_IN_FLOAT8)


class Losses(Section):
    """The losses of the rungs at the last step: of one context and batch for each size."""

    @cached_property
    def every(self) -> Rows:
        """A row for each rung, with `dtype`, that of the rung.

        loss: the mean over its runs. runs: how many. beyond: by which fraction it is outside the
            range of `low` and `high`; 0 within.

        The same for all rows of a size:

        apart: by which fraction the runs of a rung differ at most, if there are several.
        low, high: the range of the losses with float32 weights and gradients, if there are two.
        outside: `beyond` of the worst loss with bf16 weights.
        """
        rows = self.rows(STEM).valid.frame
        rows = rows[rows["loss"].notna() & (rows["step"] == rows["step"].max())]
        most = rows.groupby(CELL)["implementation"].nunique().sort_values(kind="stable")
        most = most.groupby("size").tail(1).index
        rows = rows[pd.MultiIndex.from_frame(rows[CELL]).isin(most)]
        of_rung = rows.groupby([*CELL, "implementation"])["loss"]
        least, greatest, runs = map(of_rung.transform, ("min", "max", "count"))
        apart = (greatest / least - 1).where(runs > 1).groupby(rows["size"]).transform("max")
        rows = rows.assign(
            loss=of_rung.transform("mean"),
            runs=runs,
            apart=apart,
            dtype=rows["implementation"].map({n: w.dtype for n, w in WAYS.items()}),
        ).drop_duplicates([*CELL, "implementation"])
        is_narrow, is_graph = rows["dtype"] == NARROW, rows["implementation"] == "graph"
        exact = rows["loss"].mask(is_narrow | is_graph).groupby(rows["size"])
        is_range = exact.transform("count") > 1
        low, high = (exact.transform(end).where(is_range) for end in ("min", "max"))
        beyond = (rows["loss"] / high - 1).clip(lower=0) + (rows["loss"] / low - 1).clip(upper=0)
        narrow = beyond.where(rows["implementation"].isin(_NARROW_RUNGS))
        outside = narrow.groupby(rows["size"]).transform(_farthest)
        rows = rows.assign(low=low, high=high, beyond=beyond, outside=outside)
        return self.rows(STEM).kept(rows)

    @property
    def of_bf16_weights(self) -> Rows:
        """The rows of SHOWN_RUNGS of sizes that have a run with bf16 weights."""
        rows = self.every.frame
        sizes = having(rows, dtype=NARROW)["size"].unique()
        return self.every.kept(having(rows, size=[*sizes], implementation=[*SHOWN_RUNGS]))

    @property
    def step(self) -> int:
        """The step at which losses are compared."""
        return int(self.every.only("step"))

    @property
    def tokens(self) -> list[int]:
        """Tokens of a step."""
        rows = self.every.frame
        return sorted({int(n) for n in rows["context_length"] * rows["batch"]})

    @property
    def stated(self) -> dict:
        """How the losses were measured, as the benchmark declares it: steps, learning rate."""
        return load(STEM).stated

    @property
    def runs(self) -> Range:
        """How many runs a loss is the mean of."""
        if not {*self.every.frame["implementation"]} - {FLOAT32}:
            raise NotMeasured("no losses were compared")
        return of_rows(Range.of(self.every.frame["runs"]), self.every.frame)

    # Steps beside those with float32 weights and gradients.

    @cached_property
    def bf16(self) -> Outside:
        """The worst losses with bf16 weights."""
        return self._outside(*_NARROW_RUNGS)

    @cached_property
    def graph(self) -> Outside:
        """The losses of the graph with float32 weights."""
        return self._outside("graph")

    def float8(self, rung: str) -> Outside:
        """The losses of a rung with float8 matmuls over bf16 weights."""
        return self._outside(rung)

    def _outside(self, *rungs: str) -> Outside:
        """The losses of some rungs, of the sizes at which each of them holds."""
        doubtful = having(self.every.frame, implementation=rungs, holds=False)["size"]
        rows = self.every.sound
        return Outside(rows[~rows["size"].isin(doubtful)], rungs)

    @property
    def apart(self) -> dict[str, float]:
        """Size -> by which fraction runs of a rung with other seeds differ at most."""
        rows = self.every.sound.dropna(subset=["apart"])
        return {size: of_rows(part["apart"].iloc[0], part) for size, part in rows.groupby("size")}

    @property
    def widest(self) -> pd.Series:
        """A row of the size whose losses with float32 weights and gradients differ most.

        share: by which fraction. These runs have one seed, and differ in how they round.
        """
        rows = self.every.sound.dropna(subset=["low"])
        rows = rows.assign(share=rows["high"] / rows["low"] - 1)
        return required(rows, "no size has two such losses").nlargest(1, "share").iloc[0]

    @property
    def of_step(self) -> Quantity:
        """The loss of the rung that a step is, with the signs of the loss."""
        shown = number("loss", "loss", "precise")
        return of_others(shown, self.every.frame, ["size", "implementation"])

    @property
    def outside_column(self) -> list[Quantity]:
        """How far the loss with bf16 weights ends outside of the range."""
        return [number("outside", "bf16 weights, outside the range", _outside_words, owner=FLOAT32)]


class Outside:
    """How far losses of some rungs are outside the range with float32 weights and gradients.

    Args:
        rows: the rows of `Losses.every` that a sentence may rest on.

    Attributes:
        by_size: size -> how far the worst of these losses is outside, as a fraction.

    Raises:
        NotMeasured: none of these losses stands beside a range.
    """

    def __init__(self, rows: pd.DataFrame, rungs: Sequence[str]):
        losses = having(rows, implementation=rungs).dropna(subset=["beyond"])
        losses = required(losses, "no such loss beside two with float32")
        self._rows = rows
        self.by_size = losses.groupby("size", sort=False)["beyond"].agg(_farthest)

    @property
    def harmless(self) -> list[str]:
        """The sizes whose losses are below, in or near the range."""
        sizes = self.by_size[self.by_size <= NEAR]
        return [*required(sizes, "each of these losses is above those with float32").index]

    @property
    def bound(self) -> float:
        """How far the losses of `harmless` are above the range at most, as a fraction."""
        rows = having(self._rows, size=self.harmless)
        return of_rows(self.by_size[self.harmless].max().clip(0), rows)

    @property
    def above(self) -> dict[str, float]:
        """Size -> how far losses are above the range, of those that are not near it."""
        above = self.by_size[self.by_size > NEAR]
        return {size: of_rows(far, having(self._rows, size=size)) for size, far in above.items()}


def _outside_words(value: float) -> str:
    return "no" if abs(value) < SHOWN else signed_percent(value)


def _farthest(values: pd.Series) -> float:
    """The greatest value if one is above 0, else the least; NaN if there is none."""
    return values.max() if values.max() > 0 else values.min()
