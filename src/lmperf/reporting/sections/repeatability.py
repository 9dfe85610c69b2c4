"""Repeatability (R1): rows that were measured a second time, in a new process.

A pair has the same key: the same cell, code, method and environment.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.reporting.evidence import KERNEL, STEP, WAITING, having, some
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured, Range
from lmperf.statistics import LEAST_PAIRS

KINDS = (KERNEL, STEP, WAITING)
LEAST = LEAST_PAIRS  # fewer rows of a kind say nothing
ASSUMED = {KERNEL: "kernels", STEP: "steps", WAITING: "steps that wait for the CPU"}
AT_LIMIT = 0.95  # of the power limit


class Repeatability(Section):
    """The second time of each row beside its first."""

    kernels, steps, waiting = KINDS

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The rows with two results (`Evidence.twice`).

        apart: how far the second time is from the first, a fraction. waits: for the CPU, in either
        process.
        """
        both = some(self.evidence.twice, "no row was measured twice")
        apart = (both["ms_again"] / both["ms"] - 1).abs()
        return both.assign(apart=apart, waits=both["noise_kind"] == WAITING)

    @property
    def lines(self) -> Rows:
        """`pairs` as lines of table R1."""
        return self.rows("", self.pairs)

    def apart(self, kind: str) -> Range:
        """How far the times of a kind differ."""
        rows = having(self.pairs, noise_kind=kind)
        if len(rows) < LEAST:
            raise NotMeasured(f"fewer than {LEAST} rows of kind {kind} were measured twice")
        return Range.of(rows["apart"])

    def number(self, kind: str) -> int:
        """How many rows of a kind were measured twice."""
        return len(having(self.evidence.twice, noise_kind=kind))

    @property
    def assumed(self) -> list[str]:
        """The kinds whose noise floor is assumed, since too few rows were measured twice."""
        kinds = KINDS if self.evidence.is_cuda else KINDS[:-1]
        if "end_to_end" not in self.evidence.stems:
            kinds = KINDS[:1]
        few = [kind for kind in kinds if self.number(kind) < LEAST]
        return [ASSUMED[kind] for kind in some(few, "all noise floors are measured")]

    @property
    def has_steps(self) -> bool:
        """Whether enough steps that keep the device busy were measured twice."""
        return self.number(STEP) >= LEAST

    @property
    def at_the_limit(self) -> pd.Series:
        """The kernel that two GPUs time furthest apart, of those at the power limit."""
        limit = self.evidence.environment.get("power_limit_w") or np.nan
        rows = having(self.pairs, noise_kind=KERNEL)
        rows = rows[rows["gpus"] != rows["gpus_again"]]
        rows = rows[rows["power_w_again"] > AT_LIMIT * limit]
        rows = some(rows, "no kernel at the power limit was measured on two GPUs")
        return rows.loc[rows["apart"].idxmax()]
