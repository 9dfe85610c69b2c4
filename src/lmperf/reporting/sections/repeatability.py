"""Repeatability (R1): rows that were measured a second time, in a new process.

A pair has the same key: the same cell, code, method and environment.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.reporting.evidence import AT_LIMIT, KERNEL, STEP, WAITING, having, some
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured, Range
from lmperf.statistics import LEAST_PAIRS

KINDS = (KERNEL, STEP, WAITING)
ASSUMED = {KERNEL: "kernels", STEP: "steps", WAITING: "steps that wait for the CPU"}


class Repeatability(Section):
    """The second time of each row beside its first."""

    kernels, steps, waiting = KINDS

    @property
    def lines(self) -> Rows:
        """`Evidence.twice` as lines of table R1."""
        return self.rows("", self.evidence.twice)

    def apart(self, kind: str) -> Range:
        """How far the times of a kind differ."""
        if len(self.of_kind(kind)) < LEAST_PAIRS:
            raise NotMeasured(f"too few rows of kind {kind} were measured twice")
        return Range.of(self.of_kind(kind)["apart"])

    def of_kind(self, kind: str) -> pd.DataFrame:
        """The rows of a kind that were measured twice."""
        return having(self.evidence.twice, noise_kind=kind)

    @property
    def assumed(self) -> list[str]:
        """The kinds whose noise floor is assumed, since too few rows were measured twice."""
        kinds = KINDS if self.evidence.is_cuda else KINDS[:-1]
        if "end_to_end" not in self.evidence.stems:
            kinds = KINDS[:1]
        few = [kind for kind in kinds if len(self.of_kind(kind)) < LEAST_PAIRS]
        return [ASSUMED[kind] for kind in some(few, "all noise floors are measured")]

    @property
    def has_steps(self) -> bool:
        """Whether enough steps that keep the device busy were measured twice."""
        return len(self.of_kind(STEP)) >= LEAST_PAIRS

    @property
    def moved(self) -> int:
        """How many second times are known to be of other GPUs than the first ones."""
        both = self.evidence.twice[["gpus", "gpus_again"]].dropna()
        sets = both.map(lambda gpus: {*gpus.split(";")})
        return int((sets["gpus"] != sets["gpus_again"]).sum())

    @property
    def at_the_limit(self) -> pd.Series:
        """The kernel that two GPUs time furthest apart, of those at the power limit."""
        limit = self.evidence.environment.get("power_limit_w") or np.nan
        rows = self.of_kind(KERNEL)
        rows = rows[rows["gpus"] != rows["gpus_again"]]
        rows = rows[rows["power_w_again"] > AT_LIMIT * limit]
        rows = some(rows, "no kernel at the power limit was measured on two GPUs")
        return rows.loc[rows["apart"].idxmax()]
