"""The same train steps on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting.evidence import Evidence, having
from lmperf.reporting.results import LOWER, TIME
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.ways import CELL, STEM, STEP
from lmperf.reporting.tables import INTERVAL, Quantity, cells, time
from lmperf.reporting.words import Range, sig

KEYS = [*CELL, "dtype", "implementation"]


class Devices(Section):
    """Steps of this machine that another machine has as well."""

    @cached_property
    def others(self) -> list[Evidence]:
        """The other machines that share a timed step with this one."""
        return [one for one in self.evidence.others if not self._shared(one).empty]

    @property
    def every(self) -> Rows:
        """The steps of this machine that any other has."""
        rows = self.rows(STEM)
        shared = {label for one in self.others for label in self._shared(one).index}
        return rows.kept(rows.frame[rows.frame.index.isin(shared)])

    def columns(self) -> Sequence[Quantity]:
        """The time on this machine, then on each other one."""
        mine = time(header=self.evidence.device)
        return [mine, *(self._column(one) for one in self.others)]

    def over(self, other: Evidence) -> Range:
        """The time on another machine over that on this one, of steps that wait on neither."""
        both = self._shared(other)
        both = both[both["holds"] & both["holds_other"] & ~both["waits"] & ~both["waits_other"]]
        return Range.of(both["ms_other"] / both["ms"])

    def _shared(self, other: Evidence) -> pd.DataFrame:
        """The steps that both have, with the columns of the other's; labelled like ours."""
        mine, theirs = _steps(self.evidence), _steps(other)
        keys = [key for key in KEYS if key in load(STEM).identity]
        both = mine.reset_index().merge(theirs, "inner", keys, suffixes=("", "_other"))
        return both.set_index("index")

    def _column(self, other: Evidence) -> Quantity:
        def make(_: Evidence, rows: pd.DataFrame) -> pd.Series:
            both = self._shared(other)
            both = both[both.index.isin(rows.index)]
            names = [name for name in both if name.endswith("_other")]
            theirs = both[names].rename(columns=lambda name: name.removesuffix("_other"))
            made = cells(theirs, "ms", sig, "{value} ({low}-{high})", **INTERVAL)
            # The command below a table measures a row of this machine again.
            return made.map(lambda cell: replace(cell, row=None))

        name = f"{other.machine}.ms"
        return Quantity(other.device, name, make, {}, "ms", LOWER, TIME)


def _steps(evidence: Evidence) -> pd.DataFrame:
    """The timed train steps of a machine, one a cell."""
    rows = having(evidence.rows(STEM), phase=STEP)
    return rows[rows["state"].isna()].drop_duplicates(KEYS, keep="last")
