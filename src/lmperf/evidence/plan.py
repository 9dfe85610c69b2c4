"""What is to be measured: the cases of the configuration against the rows that are already there.

A row is fresh when its key is the one that its cell, its implementation, today's code and its
environment give. A case whose rows are missing or stale is measured again, with its whole group,
since what can be compared must be timed in turn.

What is measured goes into `report/<machine>/store`, group by group, and stays there. The evidence
that is read and published is made from it at the end of a job: the rows that the configuration asks
for. So nobody who deletes, restores or edits evidence can lose a measurement.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmperf.benchmark import Benchmark, Case
from lmperf.benchmarks import load
from lmperf.config import Config, is_slug
from lmperf.custom import check_names
from lmperf.errors import UserError
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, Facts, empty, hardware, read_facts
from lmperf.evidence.keys import row_key
from lmperf.evidence.machine import Machine, detect, preset_of, torch_version
from lmperf.evidence.schema import sound
from lmperf.evidence.store import EVIDENCE, STORE, DamagedEvidence, Evidence, Row, text_of

# What a retry may cure: its cause may be gone, and none of it is a property of the result.
FAILURES = frozenset({"crash", "timeout", "oom"})


def row_name(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """How a message names a row: its axes that are not empty, its implementation and its phase."""
    values = {axis.name: row[axis.name] for axis in benchmark.axes}
    axes = ", ".join(f"{name}={value}" for name, value in values.items() if value != "")
    return f"{axes}: {row['implementation']}, {row['phase']}"


@dataclass(frozen=True)
class Reading:
    """The rows of a file that can be trusted, and what cannot be, a line for each."""

    rows: list[Row]
    faults: list[str]


def read(benchmark: Benchmark, evidence: Evidence) -> Reading:
    """The rows of a benchmark's evidence that are what lmperf wrote, and could have measured."""
    try:
        return Reading(*sound(benchmark, evidence.read()))
    except DamagedEvidence as damage:
        return Reading([], [str(damage)])


@dataclass(frozen=True)
class Plan:
    """One benchmark on the machine at hand: its cases, its evidence, and what is left to do.

    Attributes:
        store: every row that was measured here.
        evidence: the rows that the configuration asks for, as they are read and published.
        again: the statuses of failures that are tried once more though their rows are fresh.
        forced: cases that are measured once more whatever their rows.
        files_hold: whether the machine's facts and costs are whole.
    """

    benchmark: Benchmark
    cases: tuple[Case, ...]
    store: Evidence
    evidence: Evidence
    environment: str
    again: frozenset[str] = frozenset()
    forced: frozenset[Case] = frozenset()
    files_hold: bool = True

    @property
    def stem(self) -> str:
        return self.benchmark.stem

    def key(self, columns: Mapping[str, object]) -> str:
        axes = [axis.name for axis in self.benchmark.axes]
        own = self.benchmark.external
        return row_key(self.stem, columns, axes, self.environment, own)

    @cached_property
    def _sources(self) -> dict[Path, Reading]:
        return {one.path: read(self.benchmark, one) for one in (self.store, self.evidence)}

    @property
    def damaged(self) -> dict[Path, list[str]]:
        """What cannot be trusted, by file."""
        return {path: found.faults for path, found in self._sources.items() if found.faults}

    @cached_property
    def known(self) -> list[Row]:
        """All rows, asked for or not: of a case that both files have, the last that were measured.

        Evidence without a store is that of a clone, or of another version of lmperf.
        """
        stored, published = (found.rows for found in self._sources.values())
        of_case: dict[tuple[str, ...], list[Row]] = {}
        for rows in (published, stored):
            new: dict[tuple[str, ...], list[Row]] = {}
            for row in rows:
                new.setdefault(self.store.case_of(row), []).append(row)
            for case, found in new.items():
                if case not in of_case or _measured_at(found) >= _measured_at(of_case[case]):
                    of_case[case] = found
        order = dict.fromkeys(self.store.case_of(row) for row in (*stored, *published))
        return [row for case in order for row in of_case[case]]

    @cached_property
    def rows(self) -> list[Row]:
        """The rows that the configuration asks for."""
        return asked(self.benchmark, self.cases, self.known)

    @property
    def is_written(self) -> bool:
        """Whether the evidence is what was measured, as the configuration asks for it."""
        return self.evidence.holds(self.rows)

    @property
    def is_due(self) -> bool:
        """Whether a job has anything to do."""
        whole = self.files_hold and not self.damaged
        return bool(self.pending) or not whole or not self.is_written

    @cached_property
    def _missing(self) -> set[Case]:
        keys = {row["key"] for row in self.rows if row["status"] not in self.again}
        stale = {case for case in self.cases if not self._expected(case) <= keys}
        return stale | self.forced

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
        if case not in self._missing:
            return "with its group"
        if case in self.forced:
            return "forced"
        statuses = self._statuses.get(_names_of(case))
        if statuses is None:
            return "damaged" if self.damaged else "missing"
        return "failed" if statuses & self.again else "stale"

    def stale_row(self, case: Case) -> Row | None:
        """A row of the case that another code or environment has measured, if there is one."""
        expected = self._expected(case)
        rows = self._rows_of.get(_names_of(case), ())
        return next((row for row in rows if row["key"] not in expected), None)

    @cached_property
    def _statuses(self) -> dict[tuple[str, ...], set[str]]:
        return {case: {row["status"] for row in rows} for case, rows in self._rows_of.items()}

    @cached_property
    def _rows_of(self) -> dict[tuple[str, ...], list[Row]]:
        names = [*(axis.name for axis in self.benchmark.axes), "implementation"]
        found: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(row[name] for name in names), []).append(row)
        return found

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
        if self.is_due and not counts:
            counts = "its evidence to write from what was measured"
        return f"{words} ({counts})" if counts else words


def _measured_at(rows: list[Row]) -> str:
    return max(row.get("measured_at", "") for row in rows)


def _names_of(case: Case) -> tuple[str, ...]:
    return (*(text_of(value) for _, value in case.cell), case.implementation)


def asked(benchmark: Benchmark, cases: Iterable[Case], rows: Iterable[Row]) -> list[Row]:
    """The rows of these cases."""
    wanted = {_names_of(case) for case in cases}
    names = [*(axis.name for axis in benchmark.axes), "implementation"]
    return [row for row in rows if tuple(row[name] for name in names) in wanted]


def evidence_of(benchmark: Benchmark, directory: Path, folder: str = EVIDENCE) -> Evidence:
    """The evidence of a benchmark in `report/<machine>`, or what its store holds."""
    path = directory / folder / f"{benchmark.stem}.csv"
    case_columns = benchmark.identity[: len(benchmark.identity) - len(benchmark.index)]
    return Evidence(path, benchmark.identity, case_columns)


class Project:
    """A checkout with its configuration: where things are, and what is to be measured here.

    Raises:
        UserError: the configuration names this machine as another one that has evidence here.
    """

    def __init__(self, config: Config, root: Path = Path()):
        self.config = config
        self.root = root
        self.machine: Machine = detect(config.preset, config.machine)
        self.preset = preset_of(config.preset, self.machine.kind)
        self._require_own_name()

    @property
    def report_directory(self) -> Path:
        return self.root / "report"

    @property
    def directory(self) -> Path:
        """`report/<machine>` of the machine at hand."""
        return self.report_directory / self.machine.slug

    @property
    def store(self) -> Path:
        """Where all is kept that was measured here."""
        return self.directory / STORE

    def is_here(self, machine: str) -> bool:
        return machine == self.machine.slug

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
        return Plan(
            benchmark,
            tuple(benchmark.cases(self.preset, self.config.grid_of(stem))),
            evidence_of(benchmark, self.directory, STORE),
            evidence_of(benchmark, self.directory),
            self.machine.environment,
            FAILURES if self.config.retry_failed else frozenset(),
            files_hold=self._files_hold,
        )

    def machines_with_evidence(self) -> list[str]:
        """The machines of `report/`; a folder that could not be one's is none."""
        found = {path.parent.name for path in self.report_directory.glob(f"*/{FILE}")}
        found |= {
            path.parent.parent.name for path in self.report_directory.glob(f"*/{EVIDENCE}/*.csv")
        }
        return sorted(name for name in found if is_slug(name))

    def known_facts(self) -> tuple[Facts, list[str]]:
        """The facts of the machine at hand with all its environments, and what is damaged."""
        known, damaged = empty(self.machine.slug), []
        for directory in (self.directory, self.store):
            try:
                facts = read_facts(directory, self.machine.slug)
            except DamagedEvidence as damage:
                damaged.append(str(damage))
            else:
                known["environments"] |= facts["environments"]
        return {**known, "preset": self.preset}, damaged

    def known_costs(self) -> list[Row]:
        """What the jobs of the machine at hand have cost, as far as it is whole."""
        for folder in (STORE, EVIDENCE):
            with contextlib.suppress(DamagedEvidence):
                if rows := Cost(self.directory, folder).read():
                    return rows
        return []

    @cached_property
    def _files_hold(self) -> bool:
        known, damaged = self.known_facts()
        if damaged or not known["environments"]:
            return not damaged
        costs = self.known_costs()
        return all(
            self.machine.environment in read_facts(directory, self.machine.slug)["environments"]
            and self._has_costs(folder, costs)
            for directory, folder in ((self.directory, EVIDENCE), (self.store, STORE))
            if folder == EVIDENCE or directory.exists()  # what came with a clone has no store
        )

    def _has_costs(self, folder: str, costs: list[Row]) -> bool:
        try:
            return Cost(self.directory, folder).read() == costs
        except DamagedEvidence:
            return False

    def _require_own_name(self) -> None:
        environments = self.known_facts()[0]["environments"].values()
        here = hardware(self.machine.facts)
        if environments and here not in [hardware(facts) for facts in environments]:
            there = next(iter(environments)).get("device")
            raise UserError(
                f"config: machine is {self.machine.slug!r}, which is the name of another one"
                f" ({there}); this one ({here['device']}) needs a name of its own: give it a new"
                " one, or leave machine out"
            )
