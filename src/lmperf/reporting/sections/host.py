"""Steps that wait for the CPU."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.calculations.steps import SDPA
from lmperf.reporting.frames import having, required, sorted_for_reading
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.what_to_run import WhatToRun
from lmperf.reporting.words import NotMeasured

IDLE = 0.75  # a GPU that draws less than this share of its power limit


class Host(Section):
    """The steps at the usual cell of each size."""

    @cached_property
    def run(self) -> WhatToRun:
        return self.of("what_to_run")

    @property
    def is_asked(self) -> bool:
        """Whether steps were timed on a GPU, and not only CUDA graphs, which cannot wait."""
        rows = self.run.valid
        return self.evidence.is_cuda and not rows["implementation"].str.contains("graph").all()

    @property
    def some_wait(self) -> bool:
        return bool(self.run.valid["waits"].any())

    @property
    def idle(self) -> pd.Series:
        """The first step of `busy` if it draws little power, with the `limit` of the GPU in W."""
        step = self.busy.iloc[0]
        limit = self.evidence.environment.get("power_limit_w") or 0
        if not step["power_w"] < IDLE * limit:
            raise NotMeasured("the GPU is near its power limit")
        return pd.concat([step, pd.Series({"limit": limit})])

    @cached_property
    def busy(self) -> pd.DataFrame:
        """The compiled steps that wait."""
        rows = having(self.run.valid, way=[SDPA], waits=True, holds=True)
        return sorted_for_reading(required(rows, "no compiled step waits"), ["size"])

    @property
    def again(self) -> pd.DataFrame:
        """Those that were measured again by another process, which took `ms_again`."""
        why = "no compiled step was measured again"
        steps = having(required(self.evidence.twice, why), key=[*self.busy["key"]])
        return sorted_for_reading(required(steps, why), ["size"])

    @property
    def launching(self) -> pd.DataFrame:
        """The steps of the first size of `busy` that wait, by `us`: microseconds for a kernel."""
        rows = having(self.run.valid, size=self.busy["size"].iloc[0], waits=True, holds=True)
        rows = required(rows.dropna(subset=["launches"]), "no number of kernels")
        return rows.assign(us=1000 * rows["ms"] / rows["launches"]).sort_values("us")
