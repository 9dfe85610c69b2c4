"""What evidence is worth today: which rows are fresh, which files whole, which cells missing.

It needs no torch: a report renders, and is verified, on a machine that cannot measure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lmperf.benchmark import load, stems
from lmperf.errors import UserError
from lmperf.evidence import cost, plausible
from lmperf.evidence.cost import Cost
from lmperf.evidence.plan import Project, evidence_of, row_key, row_name
from lmperf.evidence.store import DamagedEvidence, Row


@dataclass(frozen=True)
class Cause:
    """Rows of one benchmark that fail `verify` for one reason, by name."""

    machine: str
    stem: str
    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        words = f"{self.machine}/{self.stem}: {self.kind}: "
        if len(self.names) == 1:
            return words + self.names[0]
        return f"{words}{len(self.names)} rows, the first {self.names[0]}"

    @property
    def lines(self) -> list[str]:
        """A line for each row."""
        return [f"{self.machine}/{self.stem}: {self.kind}: {name}" for name in self.names]


@dataclass
class Review:
    """One machine's evidence: rows by stem, and what is wrong with them, by name."""

    machine: str
    facts: dict
    rows: dict[str, list[Row]] = field(default_factory=dict)
    stale: dict[str, list[str]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, list[dict]] = field(default_factory=dict)
    red: dict[str, list[str]] = field(default_factory=dict)
    impossible: dict[str, list[str]] = field(default_factory=dict)
    cost: list[Row] = field(default_factory=list)

    @property
    def missing(self) -> dict[str, list[str]]:
        """The rows that are lacking, by name."""
        return {stem: [_name_of(row) for row in rows] for stem, rows in self.lacking.items()}

    def causes(self) -> Iterator[Cause]:
        """Everything that keeps this evidence from being whole, fresh and right."""
        for stem, reason in self.damaged.items():
            yield Cause(self.machine, stem, "damaged", (reason,))
        for kind, named in (
            ("red gate", self.red),
            (plausible.KIND, self.impossible),
            ("missing", self.missing),
            ("stale", self.stale),
        ):
            for stem, names in named.items():
                yield Cause(self.machine, stem, kind, tuple(names))


def review(project: Project, machine: str) -> Review:
    """Read a machine's evidence and hold it against today's code and configuration.

    Raises:
        UserError: there is no evidence of such a machine.
    """
    directory = project.report_directory / machine
    path = directory / "machine.json"
    if not path.exists():
        known = ", ".join(project.machines_with_evidence()) or "none"
        raise UserError(f"{path}: no evidence of machine {machine}; there is evidence of: {known}")
    reviewed = Review(machine, json.loads(path.read_text()))
    for stem in stems():
        _review_benchmark(project, reviewed, stem)
    _review_times(project, reviewed)
    try:
        reviewed.cost = Cost(directory).read()
    except DamagedEvidence as damage:
        reviewed.damaged[cost.STEM] = str(damage)
    return reviewed


def _review_benchmark(project: Project, reviewed: Review, stem: str) -> None:
    own = project.config.own(stem)
    benchmark = load(stem, own)
    evidence = evidence_of(benchmark, project.report_directory / reviewed.machine)
    try:
        rows = evidence.read()
    except DamagedEvidence as damage:
        reviewed.damaged[stem] = str(damage)
        return
    if rows:
        reviewed.rows[stem] = rows
    axes = [axis.name for axis in benchmark.axes]

    stale, red = [], []
    for row in rows:
        environment = _environment_of(project, reviewed, row)
        if row["key"] != row_key(stem, row, axes, environment, own):
            stale.append(row_name(benchmark, row))
        elif row["status"] in ("failed_check", "nan"):
            red.append(row_name(benchmark, row))
    _note(reviewed.stale, stem, stale)
    _note(reviewed.red, stem, red)
    lacking = _lacking(project, reviewed, stem, rows)
    if lacking:
        reviewed.lacking[stem] = lacking


def _review_times(project: Project, reviewed: Review) -> None:
    """Note the rows whose times are below their floors, by what this machine can do at most."""
    ceilings = reviewed.rows.get("ceilings", [])
    limits = plausible.limits_of(ceilings, reviewed.facts.get("environments", {}))
    for stem, rows in reviewed.rows.items():
        benchmark = load(stem, project.config.own(stem))
        found = [row_name(benchmark, row) for row in rows if plausible.impossible(limits, row)]
        _note(reviewed.impossible, stem, found)


def prune(project: Project, machine: str) -> int:
    """Drop stale rows of cells that the grid no longer has; nothing would measure them again."""
    facts = review(project, machine).facts
    dropped = 0
    for stem in stems():
        own = project.config.own(stem)
        benchmark = load(stem, own)
        evidence = evidence_of(benchmark, project.report_directory / machine)
        if not evidence.path.exists():
            continue
        names = [axis.name for axis in benchmark.axes]
        cases = benchmark.cases(facts.get("preset", "cpu"), project.config.grid_of(stem))
        due = {(*(str(value) for _, value in c.cell), c.implementation) for c in cases}

        def wanted(row: Row, stem=stem, names=names, due=due, own=own) -> bool:
            is_due = (*(row[name] for name in names), row["implementation"]) in due
            return is_due or row["key"] == row_key(stem, row, names, row["environment"], own)

        dropped += evidence.keep(wanted)
    return dropped


def _environment_of(project: Project, reviewed: Review, row: Row) -> str:
    """The environment that makes a row fresh: this machine's own, here; elsewhere, the row's."""
    here = project.can_measure and reviewed.machine == project.machine.slug
    return project.machine.environment if here else row["environment"]


def _lacking(project: Project, reviewed: Review, stem: str, rows: list[Row]) -> list[dict]:
    """Rows of the grid, by the preset that this machine was measured with, that are not there.

    Each is its axes, its implementation and its phase.
    """
    preset = reviewed.facts.get("preset", "cpu")
    if stem not in project.config.stems(preset):
        return []
    benchmark = load(stem, project.config.own(stem))
    names = [axis.name for axis in benchmark.axes]
    have = {(*(row[name] for name in names), row["implementation"], row["phase"]) for row in rows}
    cases = benchmark.cases(preset, project.config.grid_of(stem))
    return [
        {**case.axes, "implementation": case.implementation, "phase": phase}
        for case in cases
        for phase in benchmark.phases
        if (*(str(value) for _, value in case.cell), case.implementation, phase) not in have
    ]


def _name_of(row: dict) -> str:
    *axes, (_, implementation), (_, phase) = row.items()
    cell = ", ".join(f"{axis}={value}" for axis, value in axes)
    return f"{cell}: {implementation}, {phase}"


def _note(named: dict[str, list[str]], stem: str, names: list[str]) -> None:
    if names:
        named[stem] = list(dict.fromkeys(names))


def causes(project: Project, machine: str) -> list[Cause]:
    """Why a machine's evidence is not to be trusted whole; empty when it is.

    Raises:
        UserError: there is no evidence of such a machine, and it is not the one at hand.
    """
    if machine == project.machine.slug and machine not in project.machines_with_evidence():
        return [Cause(machine, "evidence", "missing", ("this machine has not been measured",))]
    return list(review(project, machine).causes())


def tally(found: Sequence[Cause]) -> list[str]:
    """What is wrong, a line for each kind: how many rows, and of which benchmarks."""
    kinds = dict.fromkeys(cause.kind for cause in found)
    return [_tally_of(kind, [cause for cause in found if cause.kind == kind]) for kind in kinds]


def _tally_of(kind: str, found: Sequence[Cause]) -> str:
    total = sum(len(cause.names) for cause in found)
    where = ", ".join(f"{cause.stem} {len(cause.names)}" for cause in found)
    return f"{kind}: {total} ({where})"
