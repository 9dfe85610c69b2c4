"""Repeatability (R1): rows that were measured a second time, in a new process.

A pair has the same key: the same cell, code, method and environment.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.evidence.plan import row_name
from lmperf.reporting.evidence import having, of_one_call
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured, Range

KERNEL, STEP, WAITING = "kernel", "step or phase", "step or phase that waits for the CPU"
KINDS = (KERNEL, STEP, WAITING)
CEILINGS = "ceilings"
LEAST = 3  # fewer rows of a kind say nothing
AT_LIMIT = 0.95  # of the power limit


class Repeatability(Section):
    """The second time of each row beside its first."""

    kernels, steps, waiting = KINDS

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """A line for each row with two results.

        Columns: stem, cell (the name of the row), first and second (ms; of one call of a matmul
        under load), ratio (second / first), apart (|ratio - 1|), kind (of KINDS), waits (for the
        CPU in either run), phase, other_gpu, power_w, dtype and operation.
        """
        made = [self._pairs(stem) for stem in self.evidence.again]
        made = [of for of in made if len(of)]
        if not made:
            raise NotMeasured("no row was measured twice")
        return pd.concat(made, ignore_index=True)

    def _pairs(self, stem: str) -> pd.DataFrame:
        benchmark = load(stem)
        first, second = self.evidence.rows(stem), self.evidence.rows_again(stem)
        if stem == CEILINGS:
            first, second = of_one_call(first), of_one_call(second)
        both = first.drop_duplicates("key").merge(second, on="key", suffixes=("", "_again"))
        both = both[both["state"].isna() & both["state_again"].isna()]
        # A step back to back is compared with one back to back, a single call with a single call.
        lasting = both["sustained_ms"].notna() & both["sustained_ms_again"].notna()
        times = [both[f"ms{of}"].where(lasting, both[f"median_ms{of}"]) for of in ("", "_again")]
        is_step = isinstance(benchmark, Timed) and benchmark.clock == "step"
        waits = (both["waits"] | both["waits_again"]) & is_step
        return pd.DataFrame(
            {
                "stem": stem,
                "cell": [row_name(benchmark, row) for row in both.to_dict("records")],
                "first": times[0],
                "second": times[1],
                "ratio": times[1] / times[0],
                "apart": (times[1] / times[0] - 1).abs(),
                "kind": np.where(waits, WAITING, STEP) if is_step else KERNEL,
                "waits": waits,
                "phase": both["phase"],
                "other_gpu": both["gpus"] != both["gpus_again"],
                "power_w": both["power_w_again"],
                **{name: both.get(name) for name in ("dtype", "operation")},
            },
            both.index,
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
            for rows in [having(self.pairs, kind=kind)]
            if len(rows)
        )

    def apart(self, kind: str) -> Range:
        """How far the times of a kind differ."""
        rows = having(self.pairs, kind=kind)
        if len(rows) < LEAST:
            raise NotMeasured(f"fewer than {LEAST} rows of kind {kind} were measured twice")
        return Range.of(rows["apart"])

    def has_phases(self, kind: str) -> bool:
        """Whether not all rows of a kind are whole train steps."""
        return bool((having(self.pairs, kind=kind)["phase"] != "train_step").any())

    @property
    def has_steps(self) -> bool:
        """Whether enough steps that keep the device busy were measured twice."""
        return bool(self.evidence.again) and len(having(self.pairs, kind=STEP)) >= LEAST

    @property
    def at_the_limit(self) -> pd.Series:
        """The kernel that two GPUs time furthest apart, of those at the power limit."""
        limit = self.evidence.environment.get("power_limit_w") or np.nan
        rows = self.pairs[self.pairs["other_gpu"] & (self.pairs["power_w"] > AT_LIMIT * limit)]
        rows = having(rows, kind=KERNEL)
        if rows.empty:
            raise NotMeasured("no kernel at the power limit was measured on two GPUs")
        return rows.loc[rows["apart"].idxmax()]
