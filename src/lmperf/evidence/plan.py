"""What is to be measured: the cases of the configuration against the rows that are already there.

A row is fresh when its key is the one that its cell, its implementation, today's code and its
environment give. A case whose rows are missing or stale is measured again, with its whole group,
since what can be compared must be timed in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmperf.benchmark import Benchmark, Case, load
from lmperf.config import Config
from lmperf.evidence.keys import row_key
from lmperf.evidence.machine import Machine, detect, preset_of, torch_version
from lmperf.evidence.store import (
    DamagedEvidence,
    Evidence,
    Row,
    text_of,
)
from lmperf.own import check_names


def row_name(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """How a message names a row: its axes that are not empty, its implementation and its phase."""
    values = {axis.name: row[axis.name] for axis in benchmark.axes}
    axes = ", ".join(f"{name}={value}" for name, value in values.items() if value != "")
    return f"{axes}: {row['implementation']}, {row['phase']}"


@dataclass(frozen=True)
class Plan:
    """One benchmark on the machine at hand: its cases, its evidence, and what is left to do."""

    benchmark: Benchmark
    cases: tuple[Case, ...]
    evidence: Evidence
    environment: str

    @property
    def stem(self) -> str:
        return self.benchmark.stem

    def key(self, columns: Mapping[str, object]) -> str:
        axes = [axis.name for axis in self.benchmark.axes]
        own = self.benchmark.own_implementations
        return row_key(self.stem, columns, axes, self.environment, own)

    @cached_property
    def damage(self) -> str | None:
        try:
            self.evidence.read()
        except DamagedEvidence as damage:
            return str(damage)
        return None

    @cached_property
    def rows(self) -> list[Row]:
        return [] if self.damage else self.evidence.read()

    @cached_property
    def _missing(self) -> set[Case]:
        keys = {row["key"] for row in self.rows}
        return {case for case in self.cases if not self._expected(case) <= keys}

    def _expected(self, case: Case) -> set[str]:
        columns = {**case.axes, "implementation": case.implementation}
        return {self.key({**columns, "phase": phase}) for phase in self.benchmark.phases}

    @cached_property
    def pending(self) -> list[list[Case]]:
        """The groups in which a case has no fresh row."""
        groups = self.benchmark.groups(self.cases)
        return [group for group in groups if self._missing.intersection(group)]

    def why(self, case: Case) -> str:
        """Why a case of a pending group runs; one with fresh rows is timed beside the others."""
        if self.damage:
            return "damaged"
        if case not in self._missing:
            return "with its group"
        axes = (text_of(value) for _, value in case.cell)
        return "stale" if (*axes, case.implementation) in self._known else "missing"

    @cached_property
    def _known(self) -> set[tuple[str, ...]]:
        names = [*(axis.name for axis in self.benchmark.axes), "implementation"]
        return {tuple(row.get(name, "") for name in names) for row in self.rows}

    @property
    def due(self) -> list[tuple[Case, str]]:
        """The cases that a run would measure, each with why it would."""
        return [(case, self.why(case)) for group in self.pending for case in group]

    @property
    def summary(self) -> str:
        """How many cases a run would measure, and why, in a line."""
        reasons = Counter(why for _, why in self.due)
        counts = ", ".join(f"{number} {why}" for why, number in sorted(reasons.items()))
        words = f"{reasons.total()} of {len(self.cases)} cases to measure"
        return f"{words} ({counts})" if counts else words


def evidence_of(benchmark: Benchmark, directory: Path) -> Evidence:
    """The evidence of a benchmark in `report/<machine>`."""
    path = directory / "evidence" / f"{benchmark.stem}.csv"
    case_columns = benchmark.identity[: len(benchmark.identity) - len(benchmark.index)]
    return Evidence(path, benchmark.identity, case_columns)


class Project:
    """A checkout with its configuration: where things are, and what is to be measured here."""

    def __init__(self, config: Config, root: Path = Path()):
        self.config = config
        self.root = root
        self.machine: Machine = detect(config.preset, config.machine)
        self.preset = preset_of(config.preset, self.machine.kind)

    @property
    def report_directory(self) -> Path:
        return self.root / "report"

    @property
    def directory(self) -> Path:
        """`report/<machine>` of the machine at hand."""
        return self.report_directory / self.machine.slug

    @property
    def can_measure(self) -> bool:
        return torch_version() is not None

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """The benchmarks to measure here; none on a machine without torch."""
        stems = self.config.stems(self.preset) if self.can_measure else []
        return {stem: self.plan(stem) for stem in stems}

    def plan(self, stem: str) -> Plan:
        benchmark = load(stem, self.config.own(stem))
        check_names(benchmark)
        cases = tuple(benchmark.cases(self.preset, self.config.grid_of(stem)))
        evidence = evidence_of(benchmark, self.directory)
        return Plan(benchmark, cases, evidence, self.machine.environment)

    def machines_with_evidence(self) -> list[str]:
        found = self.report_directory.glob("*/machine.json")
        return sorted(path.parent.name for path in found)
