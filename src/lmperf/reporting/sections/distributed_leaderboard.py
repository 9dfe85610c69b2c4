"""The train step of a public leaderboard on several GPUs, beside that of one GPU (D6)."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lmperf.reporting.evidence import Evidence, having
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured

ALONE, STEM = "leaderboard", "distributed_leaderboard"


class DistributedLeaderboard(Section):
    """The fastest step, and how much faster it is than on one GPU."""

    @property
    def best(self) -> pd.Series:
        rows = self.rows(STEM).sound
        return rows.loc[rows["ms"].idxmin()]

    @property
    def alone(self) -> pd.Series:
        """The fastest step on one GPU of this kind.

        It may be in the evidence of another machine with the same kind of GPU and software.
        """
        best = self.best
        cell = {name: best[name] for name in ("size", "context_length", "batch", "dtype")}
        for evidence in (self.evidence, *self.evidence.others):
            rows = having(evidence.rows(ALONE), holds=True, **cell)
            if len(rows) and software(evidence) == software(self.evidence):
                return rows.loc[rows["ms"].idxmin()]
        raise NotMeasured("the leaderboard's step was not measured on one GPU")

    @property
    def over_one(self) -> float:
        """How much faster the step is than that on one GPU."""
        return float(self.alone["ms"] / self.best["ms"])


def software(evidence: Evidence) -> Mapping:
    """What decides whether two machines can be compared: the kind of GPU and the versions."""
    return {name: evidence.environment.get(name) for name in ("device", "torch", "cuda", "triton")}
