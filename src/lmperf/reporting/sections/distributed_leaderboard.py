"""The train step of a public leaderboard on several GPUs (D6)."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import Evidence, having
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured


class DistributedLeaderboard(Section):
    """Its fastest step, beside that on one GPU."""

    @property
    def fastest(self) -> pd.Series:
        return self.rows("distributed_leaderboard").least("ms")

    @property
    def alone(self) -> pd.Series:
        """The fastest step on one GPU of this kind.

        It may be in the evidence of another machine with the same kind of GPU and software.
        """
        cell = self.fastest[["size", "context_length", "batch", "dtype"]]
        for evidence in (self.evidence, *self.evidence.others):
            rows = having(evidence.rows("leaderboard"), holds=True, **cell)
            if len(rows) and _software(evidence) == _software(self.evidence):
                return rows.loc[rows["ms"].idxmin()]
        raise NotMeasured("the leaderboard's step was not measured on one GPU")


def _software(evidence: Evidence) -> list:
    """What decides whether two machines can be compared: the kind of GPU and the versions."""
    return [evidence.environment.get(name) for name in ("device", "torch", "cuda", "triton")]
