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
        """A line for each row with two results.

        Columns: stem, cell (the name of the row), first and second (ms; of one call of a matmul
        under load), ratio (second / first), apart (|ratio - 1|), noise_kind (of KINDS), waits (for
        the CPU in either run), phase, other_gpu, power_w, and the axes of its benchmark.
        """
        both = some(self.evidence.twice, "no row was measured twice")
        apart = both["ms_again"] / both["ms"]
        return both.assign(
            first=both["ms"],
            second=both["ms_again"],
            ratio=apart,
            apart=(apart - 1).abs(),
            waits=both["noise_kind"] == WAITING,
            other_gpu=both["gpus"] != both["gpus_again"],
            power_w=both["power_w_again"],
        )

    @property
    def lines(self) -> Rows:
        """`pairs` as lines of table R1."""
        return self.rows("", self.pairs)

    @property
    def by_kind(self) -> Rows:
        """A line for each kind: rows, the median difference and the largest one."""
        return self.table_rows(
            {
                "kind": kind,
                "rows": len(rows),
                "median": rows["apart"].median(),
                "worst": rows["apart"].max(),
            }
            for kind in KINDS
            for rows in [having(self.pairs, noise_kind=kind)]
            if len(rows)
        )

    def apart(self, kind: str) -> Range:
        """How far the times of a kind differ."""
        rows = having(self.pairs, noise_kind=kind)
        if len(rows) < LEAST:
            raise NotMeasured(f"fewer than {LEAST} rows of kind {kind} were measured twice")
        return Range.of(rows["apart"])

    def number(self, kind: str) -> int:
        """How many rows of a kind were measured twice."""
        return len(having(self.evidence.twice, noise_kind=kind))

    def has_phases(self, kind: str) -> bool:
        """Whether not all rows of a kind are whole train steps."""
        return bool((having(self.pairs, noise_kind=kind)["phase"] != "train_step").any())

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
        rows = self.pairs[self.pairs["other_gpu"] & (self.pairs["power_w"] > AT_LIMIT * limit)]
        rows = having(rows, noise_kind=KERNEL)
        rows = some(rows, "no kernel at the power limit was measured on two GPUs")
        return rows.loc[rows["apart"].idxmax()]
