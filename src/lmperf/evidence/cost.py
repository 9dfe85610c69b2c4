"""The cost of measuring: one row per job with its seconds by kind of work.

Rows are written to `store/cost.csv` after each group, so that the saved rows of a killed job have
their cost, too. `evidence/cost.csv` is made from them, as all evidence is.
"""

from __future__ import annotations

from pathlib import Path

from lmperf.evidence.store import EVIDENCE, Evidence, Row
from lmperf.measuring.stopwatch import KINDS

STEM = "cost"
IDENTITY = ("stem", "started_at")
COLUMNS = (*IDENTITY, "finished_at", "preset", "groups", "rows", "wall_s", *KINDS)


class Cost(Evidence):
    """The costs of a machine's jobs: evidence with its own columns."""

    def __init__(self, directory: Path, folder: str = EVIDENCE):
        super().__init__(directory / folder / f"{STEM}.csv", IDENTITY, IDENTITY)

    def _columns(self, rows: list[Row]) -> list[str]:
        return list(COLUMNS)
