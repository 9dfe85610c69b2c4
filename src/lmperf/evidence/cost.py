"""What measuring cost: a row for each job, with its seconds by kind of work.

The rows are kept in `store/cost.csv`, and written after each group: what a killed job had saved has
its cost beside it. They are evidence like any other: `evidence/cost.csv` is made from them.
"""

from __future__ import annotations

from pathlib import Path

from lmperf.evidence.store import EVIDENCE, Evidence, Row
from lmperf.measuring.stopwatch import KINDS

STEM = "cost"
IDENTITY = ("stem", "started_at")
COLUMNS = (*IDENTITY, "finished_at", "preset", "groups", "rows", "wall_s", *KINDS)


class Cost(Evidence):
    """The costs of a machine's jobs: evidence with columns of its own."""

    def __init__(self, directory: Path, folder: str = EVIDENCE):
        super().__init__(directory / folder / f"{STEM}.csv", IDENTITY, IDENTITY)

    def _columns(self, rows: list[Row]) -> list[str]:
        return list(COLUMNS)
