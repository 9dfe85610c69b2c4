"""The time line of a fully sharded step: the figure, and what a sentence about it rests on."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.frames import having, required
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.ranks_memory import LINE
from lmperf.reporting.words import sig

STEM = "distributed_timeline"
COMPUTATION, GATHER = "computation", "all-gather"
# Kind of interval -> its colour.
COLOURS = {COMPUTATION: "blue", GATHER: "orange", "reduce-scatter": "green", "all-reduce": "violet"}


class TimeLine(Section):
    """A row for each interval of two blocks; all have the ledger of the step."""

    colours = COLOURS

    @cached_property
    def ledger(self) -> Rows:
        """One row for each step, or the state of one that failed."""
        return self.rows(STEM, self.evidence.rows(STEM).drop_duplicates(LINE))

    @property
    def step(self) -> pd.Series:
        """The ledger of the step that is drawn."""
        return self.ledger.sound.iloc[0]

    @property
    def gathers(self) -> list[float]:
        """ms of each all-gather in the forward pass that is drawn whole."""
        rows = self._intervals
        is_gather = (rows["kind"] == "all_gather") & (rows["part"] == "forward")
        rows = required(rows[is_gather], "no all-gather is drawn")
        return (rows["end_ms"] - rows["start_ms"]).tolist()

    @property
    def block(self) -> float:
        """ms of a block in the forward pass: half of what is drawn of it."""
        rows = self._intervals
        rows = required(rows[rows["part"] == "forward"], "no forward pass is drawn")
        return float(rows["end_ms"].max()) / 2

    @property
    def _intervals(self) -> pd.DataFrame:
        """The intervals of the step that is drawn, in order."""
        rows = having(self.evidence.rows(STEM), **self.step[LINE])
        return rows[rows["kind"].notna()]

    @property
    def bars(self) -> list[dict]:
        """The intervals of the figure, a panel for each pass."""
        bars = []
        for row in self._intervals.to_dict("records"):
            name = row["kind"].replace("_", "-")
            bars.append(
                {
                    "panel": f"{row['part']}, two blocks",
                    "line": name if name == COMPUTATION else "communication",
                    "name": name,
                    "x": row["start_ms"],
                    "until": row["end_ms"],
                    "value": f"{sig(row['end_ms'] - row['start_ms'])} ms",
                }
            )
        return bars
