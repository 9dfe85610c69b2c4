"""The rows that a full run measures a second time at its end, in a new process (table R1).

A number of the report should hold outside the run that made it. How far it does is measured:
`draw` chooses rows of all timed benchmarks, and `evidence/repeatability.csv` has their second
times. Such a row has the columns and the key of the row that it repeats, and the stem of its
benchmark in the column `benchmark`. It is stale whenever the first row would be.

The draw orders the rows by a digest of their names. So it is the same in every run, and a new cell
or implementation changes at most a few of the drawn rows.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.benchmarks import load, stems
from lmperf.evidence.consistent import is_unsettled
from lmperf.evidence.keys import row_key
from lmperf.evidence.plan import Reading, filled, row_name, summary_of
from lmperf.evidence.schema import sound
from lmperf.evidence.store import EVIDENCE, DamagedEvidence, Evidence, Row, text_of

# The name of the file, of the workflow's rule and of the job in `cost.csv`.
STEM = "repeatability"
BENCHMARK = "benchmark"
IDENTITY = (BENCHMARK, "implementation", "phase")
# Number of rows that are drawn; half of them are kernels, half of them steps.
ROWS = 24
# At most so many of the drawn steps compile a model, since each compilation may take a minute.
MOST_COMPILED = 2
# Benchmarks whose rows are not drawn: a row takes a minute or more to prepare and time again.
LEFT_OUT = frozenset(("checkpointing", "leaderboard", "distributed_leaderboard"))
# The seed of the draw.
_SEED = 25


@dataclass(frozen=True)
class Drawn:
    """One phase of a case that is measured a second time.

    Attributes:
        benchmark: the benchmark of the case, with the drawn phase alone.
    """

    benchmark: Timed
    case: Case

    @property
    def columns(self) -> dict[str, Any]:
        """The values that identify the row: benchmark, axes, implementation and phase."""
        (phase,) = self.benchmark.phases
        about = {"implementation": self.case.implementation, "phase": phase}
        return {BENCHMARK: self.benchmark.stem, **self.case.axes, **about}

    @property
    def texts(self) -> tuple[str, ...]:
        """The values of `columns` as the texts of a CSV row, as from `Repeated.case_of`."""
        return tuple(map(text_of, self.columns.values()))

    @property
    def name(self) -> str:
        """The name of the row in messages."""
        return f"{self.benchmark.stem}: {row_name(self.benchmark, self.columns)}"

    @property
    def compiles_a_model(self) -> bool:
        """Whether the first calls compile a model; a kernel compiles in seconds."""
        compiles = self.benchmark.implementation(self.case.implementation).compiles
        return compiles and self.benchmark.clock == "step"


def draw(offered: Iterable[tuple[Benchmark, Sequence[Case]]]) -> list[Drawn]:
    """Return up to ROWS rows to measure a second time.

    Kernels and steps get half of the rows each, as far as there are enough. The benchmarks of each
    kind take turns, and so do the phases of a benchmark. Peers and custom implementations are left
    out, because another installed package would change the draw; so are cases that an
    implementation does not support, and the benchmarks in LEFT_OUT.

    offered: benchmarks of any kind with the cases that are measured.
    """
    by_clock: dict[str, list[list[Drawn]]] = {"kernel": [], "step": []}
    # By name, since the callers have different orders.
    for benchmark, cases in sorted(offered, key=lambda one: one[0].stem):
        if isinstance(benchmark, Timed) and benchmark.stem not in LEFT_OUT:
            by_clock[benchmark.clock].append(_in_turn(_phases(benchmark, cases)))
    kernels, steps = map(_in_turn, by_clock.values())
    compiled = [one for one in steps if one.compiles_a_model][MOST_COMPILED:]
    steps = [one for one in steps if one not in compiled]
    number = min(len(kernels), max(ROWS // 2, ROWS - len(steps)))
    return kernels[:number] + steps[: ROWS - number]


def _phases(benchmark: Timed, cases: Sequence[Case]) -> Iterator[list[Drawn]]:
    """Yield the rows of each phase, in the order of their digests."""
    own = [case for case in cases if _is_offered(benchmark, case)]
    for phase in type(benchmark).phases:
        of_phase = copy.copy(benchmark)
        of_phase.phases = (phase,)
        having = (case for case in own if phase in benchmark.phases_of(case))
        yield sorted((Drawn(of_phase, case) for case in having), key=_rank)


def _is_offered(benchmark: Timed, case: Case) -> bool:
    one = benchmark.implementation(case.implementation)
    return one.origin == "project" and all(
        case.axes[axis] in values for axis, values in one.only.items()
    )


def _rank(one: Drawn) -> bytes:
    return hashlib.sha256(f"{_SEED} {one.name}".encode()).digest()


def _in_turn(queues: Iterable[list[Drawn]]) -> list[Drawn]:
    """Return the first of each queue, then the second of each, and so on."""
    return [one for turn in zip_longest(*queues) for one in turn if one is not None]


class Repeated(Evidence):
    """The file `repeatability.csv` of a machine: rows of several benchmarks.

    Args:
        directory: `report/<machine>`.
        folder: `evidence` or `store`.
    """

    def __init__(self, directory: Path, folder: str = EVIDENCE):
        super().__init__(directory / folder / f"{STEM}.csv", IDENTITY, IDENTITY)

    def case_of(self, row: Row) -> tuple[str, ...]:
        """Return the texts that identify a row: benchmark, axes, implementation and phase."""
        axes = load(row[BENCHMARK]).axes if row[BENCHMARK] in stems() else ()
        names = (BENCHMARK, *(axis.name for axis in axes), "implementation", "phase")
        return tuple(row.get(name, "") for name in names)

    def reading(self) -> Reading:
        """Return the valid rows of the benchmarks that exist, and a message for each fault."""
        try:
            rows = self.read()
        except DamagedEvidence as damage:
            return Reading([], [str(damage)])
        found = Reading([], [])
        for stem in stems():
            kept, faults = sound(load(stem), [row for row in rows if row[BENCHMARK] == stem])
            found.rows.extend(kept)
            found.faults.extend(f"{self.path.name}: {fault}" for fault in faults)
        return found


@dataclass(frozen=True)
class Repeats:
    """The rows to measure a second time on the machine at hand: which are fresh, and which are due.

    The attributes are those of `plan.Plan`; store and evidence are read on first use.

    Attributes:
        drawn: the rows, from `draw`.
        again: statuses of failures that are retried although their rows are fresh.
        forced: whether all rows are measured again.
        remeasure: whether rows with a mark of `names.UNSETTLED` are measured again.
        files_hold: whether the machine's facts and costs are complete and undamaged.
        topology: the GPUs and their links, if there are several.
    """

    drawn: tuple[Drawn, ...]
    store: Repeated
    evidence: Repeated
    environment: str
    again: frozenset[str] = frozenset()
    forced: bool = False
    remeasure: bool = False
    files_hold: bool = True
    topology: str = ""

    @property
    def stem(self) -> str:
        return STEM

    @cached_property
    def _readings(self) -> dict[Path, Reading]:
        return {one.path: one.reading() for one in (self.evidence, self.store)}

    @property
    def damaged(self) -> dict[Path, list[str]]:
        """Path -> faults, for each of the two files that has faults."""
        return {path: found.faults for path, found in self._readings.items() if found.faults}

    @cached_property
    def _by_case(self) -> tuple[dict[tuple[str, ...], Row], ...]:
        """Case -> its valid row, in the evidence and in the store."""
        readings = self._readings.values()
        return tuple({self.store.case_of(row): row for row in found.rows} for found in readings)

    @cached_property
    def differing(self) -> list[tuple[str, ...]]:
        """The rows that differ in evidence and store although they were measured at the same time.

        One of the copies was changed, and nothing tells which. So neither counts.
        """
        published, stored = self._by_case
        both = [case for case in stored if case in published]
        return [
            case
            for case in both
            if stored[case]["measured_at"] == published[case]["measured_at"]
            and filled(stored[case]) != filled(published[case])
        ]

    @cached_property
    def known(self) -> list[Row]:
        """All valid rows of evidence and store; of two copies of a row, the one measured last."""
        found: dict[tuple[str, ...], Row] = {}
        for rows in self._by_case:
            for case, row in rows.items():
                if case not in found or row["measured_at"] >= found[case]["measured_at"]:
                    found[case] = row
        return [row for case, row in found.items() if case not in self.differing]

    @cached_property
    def _row_of(self) -> dict[Drawn, Row]:
        by_case = {self.store.case_of(row): row for row in self.known}
        return {one: by_case[one.texts] for one in self.drawn if one.texts in by_case}

    @property
    def rows(self) -> list[Row]:
        """The valid rows of the drawn rows, in the order of the draw."""
        return [*self._row_of.values()]

    @property
    def unsettled(self) -> set[tuple[str, ...]]:
        """The identities of the rows that were timed while the machine was at work."""
        return {self.store.case_of(row) for row in self.rows if is_unsettled(row)}

    def reason(self, one: Drawn) -> str | None:
        """One word why a row is due: forced, damaged, missing, failed, marked or stale; or None."""
        row = self._row_of.get(one)
        if self.forced:
            return "forced"
        if row is None:
            return "damaged" if self.damaged else "missing"
        if row["status"] in self.again:
            return "failed"
        if self.remeasure and is_unsettled(row):
            return "marked"
        key = row_key(one.benchmark, one.columns, self.environment, self.topology)
        return None if row["key"] == key else "stale"

    @cached_property
    def due(self) -> list[tuple[Drawn, str]]:
        """(row, reason) for each row to measure."""
        return [(one, why) for one in self.drawn if (why := self.reason(one)) is not None]

    @property
    def is_due(self) -> bool:
        """Whether a job would measure a row, repair a file or rewrite the evidence."""
        whole = self.files_hold and not self.damaged and self.evidence.holds(self.rows)
        return bool(self.due) or not whole

    @property
    def summary(self) -> str:
        """One line that says how many rows a run would measure again, and for what reasons."""
        return summary_of(self.due, self.is_due, f"{len(self.drawn)} rows to measure a second time")
