"""Repeatability (R1): rows that were measured a second time, in a new process.

A pair has the same key: the same cell, code, method and environment.
"""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import (
    ASSUMED_FLOORS,
    KERNEL,
    STEP,
    WAITING,
    having,
    required,
)
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import Range

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
        rows = required(self.of_kind(kind), f"no {kind} was measured twice")
        return of_rows(Range.of(rows["apart"]), rows)

    def of_kind(self, kind: str) -> pd.DataFrame:
        """The rows of a kind that were measured twice."""
        return having(self.evidence.twice, noise_kind=kind)

    @property
    def assumed(self) -> list[str]:
        """The kinds whose noise floor of speed-ups is assumed: too few were measured twice."""
        kinds = KINDS if self.evidence.is_cuda else KINDS[:-1]
        if "end_to_end" not in self.evidence.stems:
            kinds = KINDS[:1]
        floors = self.evidence.speedup_floors
        assumed = [kind for kind in kinds if floors[kind] == ASSUMED_FLOORS[kind]]
        return [ASSUMED[kind] for kind in required(assumed, "all noise floors are measured")]

    @property
    def moved(self) -> pd.DataFrame:
        """The rows whose second time is known to be of other GPUs than the first one."""
        both = self.evidence.twice.dropna(subset=["gpus", "gpus_again"])
        sets = both[["gpus", "gpus_again"]].map(lambda gpus: {*gpus.split(";")})
        return both[sets["gpus"] != sets["gpus_again"]]

    @property
    def between_gpus(self) -> dict[str, float]:
        """A step, a kernel -> how far two GPUs time the same one apart, at most; neither waited."""
        rows = self.moved[self.moved["noise_kind"] != WAITING]
        rows = rows[~rows["waits_again"].astype(bool)]
        far = rows.groupby(rows["noise_kind"].map({STEP: "step", KERNEL: "kernel"}))["apart"].max()
        return required(far.to_dict(), "nothing was measured on two GPUs")
