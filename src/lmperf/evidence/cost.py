"""Read and write the cost of measuring: one row per job with its seconds by kind of work.

The row of a job is written to `store/cost.csv` after each group, so that the cost of a killed job
is known, too. `evidence/cost.csv` is copied from the store, like all evidence. `expected_s` is what
the shipped record of other machines says of the same work (`lmperf.measuring.forecast`). `gpus`
holds the UUIDs of the GPUs that measured, which differ if jobs ran side by side.
"""

from __future__ import annotations

from pathlib import Path

from lmperf.evidence.store import EVIDENCE, Evidence, Row
from lmperf.measuring.stopwatch import KINDS

STEM = "cost"
IDENTITY = ("stem", "started_at")
COLUMNS = (
    *IDENTITY,
    "finished_at",
    "preset",
    "groups",
    "rows",
    "wall_s",
    *KINDS,
    "expected_s",
    "gpus",
)


class Cost(Evidence):
    """The file `cost.csv` of a machine: one row per job, with the columns in `COLUMNS`."""

    def __init__(self, directory: Path, folder: str = EVIDENCE):
        super().__init__(directory / folder / f"{STEM}.csv", IDENTITY, IDENTITY)

    def read(self) -> list[Row]:
        """Return all rows; a column that was added after a row was written is empty in that row."""
        return [{**dict.fromkeys(COLUMNS, ""), **row} for row in super().read()]

    def _columns(self, rows: list[Row]) -> list[str]:
        return list(COLUMNS)
