"""The train step of a public leaderboard, beside the published times."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.published import figure
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section

STEM = "leaderboard"
BASE = "recompute_all"  # the step whose blocks keep nothing but their inputs


class Leaderboard(Section):
    """Steps by what their blocks keep for the backward."""

    base = BASE

    @cached_property
    def every(self) -> Rows:
        """All steps; `base`: the implementation that each is compared with."""
        rows = self.rows(STEM)
        names = rows.frame["implementation"]
        base = [None if name == BASE else {"implementation": BASE} for name in names]
        return rows.kept(rows.frame.assign(base=base))

    @cached_property
    def best(self) -> pd.Series:
        """The fastest step."""
        return self.every.least("ms")

    def published(self, which: str) -> dict[str, str]:
        """A published time of this step: that of the `baseline` or the `best`."""
        return figure(STEM, implementation=which)
