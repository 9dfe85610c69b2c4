"""The same train steps on other machines."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pandas as pd

from lmperf.reporting.evidence import Evidence, matching
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
    def steps(self) -> Rows:
        """The timed train steps of this machine."""
        return self.rows(STEM).where(phase=STEP).valid

    @cached_property
    def others(self) -> list[Evidence]:
        """The other machines that share a timed step with this one."""
        return [one for one in self.evidence.others if len(self._steps_of(one))]

    @property
    def every(self) -> Rows:
        """The steps of this machine that any other has."""
        shared = {label for one in self.others for label in self._steps_of(one).index}
        return self.steps.kept(self.steps.frame[self.steps.frame.index.isin(shared)])

    def columns(self) -> list[Quantity]:
        """The time on this machine, then on each other one."""
        return [time(header=self.evidence.device), *map(self._column, self.others)]

    def over(self, other: Evidence) -> Range:
        """The time on another machine over that on this one, of steps that wait on neither."""
        theirs = self._steps_of(other)
        ours = self.steps.frame.loc[theirs.index]
        sound = [of["holds"].eq(True) & of["waits"].eq(False) for of in (ours, theirs)]
        return Range.of((theirs["ms"] / ours["ms"])[sound[0] & sound[1]])

    def _steps_of(self, other: Evidence) -> pd.DataFrame:
        """The timed steps of another machine in the cells of ours, labelled like ours."""
        steps = Rows.of(other, STEM).where(phase=STEP).valid.frame
        found = matching(self.steps.frame, steps, KEYS)
        return found[found["ms"].notna()]

    def _column(self, other: Evidence) -> Quantity:
        def make(_: Evidence, rows: pd.DataFrame) -> pd.Series:
            theirs = self._steps_of(other)
            theirs = theirs[theirs.index.isin(rows.index)]
            made = cells(theirs, "ms", sig, "{value} ({low}-{high})", **INTERVAL)
            # The command below a table measures a row of this machine again.
            return made.map(lambda cell: replace(cell, row=None))

        name = f"{other.machine}.ms"
        return Quantity(other.device, name, make, {}, "ms", LOWER, TIME)
