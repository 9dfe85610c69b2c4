"""Losses of training runs: how far bf16 weights end outside the range of float32 weights."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import in_order
from lmperf.reporting.evidence import having, some
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.steps import NARROW, WAYS
from lmperf.reporting.sections.ways import AUTOCAST, CELL, FLOAT32, TF32
from lmperf.reporting.words import NotMeasured, Range, rounded_up, signed_percent
from lmperf.transformer.rungs import RUNGS

STEM = "ladder_loss"
WORSE = 0.05  # losses of one dtype differ by less where rounding does no harm
NEAR = 0.01  # a loss within this fraction of the range with float32 weights is near it
SHOWN = 0.0005  # less of it reads as 0.0 %


class Losses(Section):
    """The losses of the rungs at the last step: of one context and batch for each size."""

    # Of the runs with float32 weights the first and the usual one; the range has all of them.
    shown = (FLOAT32, "autocast", *(rung.name for rung in RUNGS if rung.dtype == NARROW))

    @cached_property
    def every(self) -> Rows:
        """The rows with `dtype`, that of their rung; the same for all rows of a size:

        low, high, runs: the range and number of runs with float32 weights, if at least two.
        outside: how far the worst loss with bf16 weights is outside the range, as a fraction.
        """
        rows = self.rows(STEM).valid.frame
        rows = rows[rows["loss"].notna() & (rows["step"] == rows["step"].max())]
        most = rows.groupby(CELL)["implementation"].nunique().sort_values(kind="stable")
        most = most.groupby("size").tail(1).index
        rows = rows[pd.MultiIndex.from_frame(rows[CELL]).isin(most)]
        rows = rows.assign(dtype=rows["implementation"].map({n: w.dtype for n, w in WAYS.items()}))
        is_narrow = rows["dtype"] == NARROW
        exact = rows["loss"].mask(is_narrow).groupby(rows["size"])
        runs = exact.transform("count")
        low, high = (exact.transform(end).where(runs > 1) for end in ("min", "max"))
        beyond = (rows["loss"] / high - 1).clip(lower=0) + (rows["loss"] / low - 1).clip(upper=0)
        outside = beyond.where(is_narrow).groupby(rows["size"]).transform(_farthest)
        return self.rows(STEM).kept(rows.assign(low=low, high=high, runs=runs, outside=outside))

    @property
    def of_bf16_weights(self) -> Rows:
        """The rows of sizes that have a run with bf16 weights."""
        rows = self.every.frame
        sizes = having(rows, dtype=NARROW)["size"].unique()
        return self.every.kept(having(rows, size=[*sizes]))

    @property
    def of_rungs(self) -> pd.Series:
        """(size, rung) -> loss; the mean over seeds."""
        return self.every.frame.groupby(["size", "implementation"])["loss"].mean()

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
        return load(STEM).stated if self.step else {}

    @property
    def seeds(self) -> int:
        """How many runs a loss is the mean of."""
        rows = self.every.frame
        if not {*rows["implementation"]} - {FLOAT32}:
            raise NotMeasured("no losses were compared")
        return int(rows.groupby([*CELL, "implementation"])["seed"].nunique().max())

    # bf16 weights beside float32 weights.

    @cached_property
    def outside(self) -> pd.Series:
        """Size -> how far the worst loss with bf16 weights is outside, as a fraction."""
        rows = self.every.sound.dropna(subset=["outside"])
        rows = some(rows, "no loss with bf16 weights beside two with float32 weights")
        return rows.groupby("size", sort=False)["outside"].first()

    @property
    def near(self) -> list[str]:
        """The sizes whose losses with bf16 weights are in or near the range."""
        near = self.outside[self.outside.abs() <= NEAR]
        return [*some(near, "no loss with bf16 weights is near those with float32 weights").index]

    @property
    def bound(self) -> float:
        """How far the losses of `near` are outside the range, rounded up to 0.1 %."""
        return rounded_up(self.outside[self.near].abs().max())

    @property
    def above(self) -> pd.Series:
        return self.outside[self.outside > NEAR]

    @property
    def below(self) -> pd.Series:
        return self.outside[self.outside < -NEAR].abs()

    # Sizes at which every run that multiplies in bf16 ends higher.

    def ends(self, size: str, *dtypes: str) -> Range:
        """The range of the losses of rungs with these dtypes."""
        return Range.of(having(self.every.frame, size=size, dtype=[*dtypes])["loss"])

    @cached_property
    def hurt(self) -> list[str]:
        """The sizes at which every run in bf16 ends above float32 and TF32 by more than NEAR."""
        sizes = in_order("size", having(self.every.frame, dtype=AUTOCAST)["size"])
        exact = having(self.every.frame, dtype=[FLOAT32, TF32])["size"].unique()
        return [size for size in sizes if size in exact and self._hurts(size)]

    def _hurts(self, size: str) -> bool:
        bf16, exact = self.ends(size, AUTOCAST, NARROW), self.ends(size, FLOAT32, TF32)
        return bf16.low > (1 + NEAR) * exact.high

    @property
    def worse(self) -> pd.Series:
        """Size -> by how much bf16 weights end above float32, where by more than WORSE."""
        losses = self.every.frame
        ends = [having(losses, dtype=of).groupby("size")["loss"].max() for of in (NARROW, FLOAT32)]
        above = (ends[0] / ends[1] - 1).dropna()
        return above[above > WORSE]

    @staticmethod
    def outside_words(value: float) -> str:
        return "no" if abs(value) < SHOWN else signed_percent(value)


def _farthest(values: pd.Series) -> float:
    """The value with the largest distance from 0; NaN if there is none."""
    return max(values.dropna(), key=abs, default=float("nan"))
