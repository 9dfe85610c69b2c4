"""Rows that a full run measures a second time at its end, in a new process (table R1).

A number of the report should hold outside the process that measured it. How far it does is measured
for each kind of row: kernels, steps that the device bounds, and steps that the host bounds. The
second times are in `evidence/repeatability.csv`, with the stem of the benchmark in the column
`benchmark`; such a row has the columns and the key of the row that it repeats.

Rows are drawn by a digest of their names from the rows that are fresh. A drawn row stays drawn
while it is fresh, so an added cell or implementation draws no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmperf.benchmark import Case, RankedTimed, Timed
from lmperf.benchmarks import load, stems
from lmperf.evidence.plan import Plan
from lmperf.evidence.rows import row_name, waits
from lmperf.evidence.store import Evidence, Row

# The name of the file, and of the workflow's rule.
STEM = "repeatability"
BENCHMARK = "benchmark"
ROWS = 12
# Benchmarks whose rows are not drawn: a row takes a minute or more to prepare and time again.
LEFT_OUT = frozenset(("checkpointing", "leaderboard", "distributed_leaderboard"))
_SEED = 25


def repeated(directory: Path) -> Evidence:
    """Return the second times in `report/<machine>`: rows of several benchmarks."""
    axes = dict.fromkeys(axis.name for stem in stems() for axis in load(stem).axes)
    return Evidence(directory, STEM, (BENCHMARK, *axes, "implementation", "phase"))


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
        """Whether any case may be drawn."""
        return any(_may_repeat(plan, case) for plan in self.plans for case in plan.chosen)

    @cached_property
    def _first(self) -> dict[str, list[tuple[Plan, Case, Row]]]:
        """Kind -> the rows that may be drawn, in the order of the draw."""
        found: dict[str, list[tuple[Plan, Case, Row]]] = {}
        for plan in self.plans:
            for case in plan.chosen:
                if not _may_repeat(plan, case) or case in plan.due:
                    continue
                for row in plan.rows_of(case):
                    if row["status"] == "ok":
                        found.setdefault(_kind(plan, row), []).append((plan, case, row))
        return {kind: sorted(of, key=lambda one: _rank(*one)) for kind, of in found.items()}

    @cached_property
    def _again(self) -> dict[str, Row]:
        """Key -> the second row with this key."""
        return {row["key"]: row for row in repeated(self.directory).known()[0]}

    @property
    def drawn(self) -> list[tuple[Plan, Case, Row]]:
        """The rows that have or need a second time: as many of each kind, `ROWS` in all."""
        found = []
        for of_kind in self._first.values():
            before = [one for one in of_kind if one[2]["key"] in self._again]
            new = [one for one in of_kind if one[2]["key"] not in self._again]
            found += [*before, *new][: ROWS // len(self._first)]
        return found

    @property
    def due(self) -> list[tuple[Plan, Case, Row]]:
        """The drawn rows without a second time."""
        return [one for one in self.drawn if one[2]["key"] not in self._again]

    @property
    def rows(self) -> list[Row]:
        """The second times of the drawn rows: what the view holds."""
        keys = [row["key"] for _, _, row in self.drawn]
        return [self._again[key] for key in keys if key in self._again]

    @property
    def is_due(self) -> bool:
        """Whether a row must be measured, now or when the first times are there."""
        return bool(self.due) or any(plan.due for plan in self.plans)

    @property
    def summary(self) -> str:
        """How many rows a run measures a second time."""
        if any(plan.due for plan in self.plans):
            return f"{ROWS} rows a second time, after all first times"
        return f"{len(self.due)} of {len(self.drawn)} rows to measure a second time"


def _may_repeat(plan: Plan, case: Case) -> bool:
    """Whether a case is timed by code of the project that does not compile for long.

    The steps on several ranks compile one block.
    """
    of = plan.benchmark
    one = of.implementation(case.implementation)
    is_timed = isinstance(of, Timed) and of.stem not in LEFT_OUT
    is_quick = isinstance(of, RankedTimed) or not one.compiles
    return is_timed and one.origin == "project" and is_quick


def _kind(plan: Plan, row: Row) -> str:
    if plan.benchmark.clock != "step":
        return "kernel"
    return "step host" if waits(row) else f"step {row.get('bound') or ''}".strip()


def _rank(plan: Plan, _: Case, row: Row) -> bytes:
    name = f"{_SEED} {plan.stem}: {row_name(plan.benchmark, row)}"
    return hashlib.sha256(name.encode()).digest()
