"""Rows that a full run measures a second time at its end, in a new process (table R1).

A number of the report should hold outside the process that measured it. How far it does is measured
for what the first page recommends and its peers: each benchmark declares them (`repeated`). The
second times are in `evidence/repeatability.csv`, with the stem of the benchmark in the column
`benchmark`; such a row has the columns and the key of the row that it repeats.

A first time that is measured again needs another second time: one from before is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmperf.benchmark import Case
from lmperf.benchmarks import load, stems
from lmperf.evidence.plan import Plan
from lmperf.evidence.store import Row, RowFiles

# The name of the file, and of the workflow's rule.
STEM = "repeatability"
BENCHMARK = "benchmark"


def second_times(directory: Path) -> RowFiles:
    """Return the second times in `report/<machine>`: rows of several benchmarks."""
    axes = dict.fromkeys(axis.name for stem in stems() for axis in load(stem).axes)
    return RowFiles(directory, STEM, (BENCHMARK, *axes, "implementation", "phase"))


@dataclass(frozen=True)
class Repeats:
    """The rows of a machine to measure a second time.

    Attributes:
        directory: `report/<machine>`.
        plans: the plans of the benchmarks that the machine measures.
    """

    directory: Path
    plans: Sequence[Plan]

    @property
    def is_possible(self) -> bool:
        """Whether any case is measured a second time."""
        return any(self._cases(plan) for plan in self.plans)

    @staticmethod
    def _cases(plan: Plan) -> list[Case]:
        return [case for case in plan.chosen if case in plan.repeated]

    @cached_property
    def _first(self) -> list[tuple[Plan, Case, Row]]:
        """The fresh rows with a result that have or need a second time."""
        return [
            (plan, case, row)
            for plan in self.plans
            for case in self._cases(plan)
            if case not in plan.due
            for row in plan.rows_of(case)
            if row["status"] == "ok"
        ]

    @cached_property
    def _again(self) -> dict[str, Row]:
        """Key -> the second row with this key."""
        return {row["key"]: row for row in second_times(self.directory).known()[0]}

    def _second(self, first: Row) -> Row | None:
        """The second time of a row; None if it was not measured after the first one."""
        again = self._again.get(first["key"])
        return again if again and again["measured_at"] >= first["measured_at"] else None

    @property
    def due(self) -> list[tuple[Plan, Case, Row]]:
        """The first times without a second one."""
        return [first for first in self._first if self._second(first[2]) is None]

    @property
    def rows(self) -> list[Row]:
        """The second times: what the view holds."""
        return [row for _, _, first in self._first if (row := self._second(first))]

    @property
    def is_due(self) -> bool:
        """Whether a row must be measured, now or when the first times are there."""
        return bool(self.due) or any(plan.due for plan in self.plans)

    @property
    def summary(self) -> str:
        """How much a run measures a second time."""
        if any(plan.due for plan in self.plans):
            number = sum(map(len, map(self._cases, self.plans)))
            return f"{number} cases a second time, after all first times"
        return f"{len(self.due)} of {len(self._first)} rows to measure a second time"
