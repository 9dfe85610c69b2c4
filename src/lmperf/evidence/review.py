"""What evidence is worth today: which rows are fresh, which files whole, which cells missing.

It needs no torch: a report renders, and is verified, on a machine that cannot measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmperf.benchmark import Benchmark, Case, Implementation
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence import cost, plausible
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, Facts, empty, read_facts
from lmperf.evidence.keys import is_fresh
from lmperf.evidence.plan import Project, asked, evidence_of, read, row_name
from lmperf.evidence.store import EVIDENCE, STORE, DamagedEvidence, Evidence, Row, text_of

# What is damaged where the facts of a machine are.
MACHINE = "machine"
# Where a fresh row is named that is no measurement, by its status.
_KINDS = {
    **dict.fromkeys(("failed_check", "nan"), "red"),
    **dict.fromkeys(("crash", "timeout"), "failed"),
    "oom": "oom",
}


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
    """One machine's evidence: rows by stem, and what is wrong with them, by name.

    `lost` says of a file that is of no benchmark (the machine's facts, the costs) what is damaged.
    """

    machine: str
    facts: Facts
    lost: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    stale: dict[str, list[str]] = field(default_factory=dict)
    lacking: dict[str, list[dict]] = field(default_factory=dict)
    red: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    oom: dict[str, list[str]] = field(default_factory=dict)
    impossible: dict[str, list[str]] = field(default_factory=dict)
    cost: list[Row] = field(default_factory=list)

    @property
    def missing(self) -> dict[str, list[str]]:
        """The rows that are lacking, by name."""
        return {stem: [_name_of(row) for row in rows] for stem, rows in self.lacking.items()}

    def causes(self) -> Iterator[Cause]:
        """Everything that keeps this evidence from being whole, fresh and right."""
        for stem, reason in (self.lost | self.damaged).items():
            yield Cause(self.machine, stem, "damaged", (reason,))
        for kind, named in (
            ("red gate", self.red),
            ("failed", self.failed),
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
    if machine not in project.machines_with_evidence():
        known = ", ".join(project.machines_with_evidence()) or "none"
        raise UserError(f"{directory}: no evidence of machine {machine}; there is of: {known}")
    reviewed = Review(machine, *_facts(directory, machine))
    for stem in stems():
        _review_benchmark(project, reviewed, stem)
    _review_times(project, reviewed)
    try:
        reviewed.cost = Cost(directory).read()
    except DamagedEvidence as damage:
        reviewed.lost[cost.STEM] = str(damage)
    return reviewed


def _facts(directory: Path, machine: str) -> tuple[Facts, dict[str, str]]:
    """The facts of a machine, and what is damaged of them."""
    if not (directory / FILE).exists():
        return empty(machine), {MACHINE: f"{directory / FILE} is missing"}
    try:
        return read_facts(directory, machine), {}
    except DamagedEvidence as damage:
        return empty(machine), {MACHINE: str(damage)}


def _own(
    project: Project, reviewed: Review, stem: str, environment: str | None = None
) -> dict[str, Implementation]:
    """The implementations that are not the project's; of another machine, with its peers.

    environment: whose versions of the peers are meant; any where it is None.
    """
    if project.is_here(reviewed.machine):
        return project.config.own(stem)
    known = reviewed.facts["environments"]
    found = known.values() if environment is None else [known.get(environment, {})]
    peers = {name: one for facts in found for name, one in facts.get("peers", {}).items()}
    return project.config.own(stem, peers)


def _review_benchmark(project: Project, reviewed: Review, stem: str) -> None:
    own = _own(project, reviewed, stem)
    benchmark = load(stem, own)
    evidence = evidence_of(benchmark, project.report_directory / reviewed.machine)
    found = read(benchmark, evidence)
    if found.faults:
        more = f" (and {len(found.faults) - 1} more)" if len(found.faults) > 1 else ""
        reviewed.damaged[stem] = found.faults[0] + more
    rows = asked(benchmark, _shown(project, reviewed, benchmark), found.rows)
    if rows:
        reviewed.rows[stem] = rows

    named: dict[str, list[str]] = {"stale": [], "red": [], "failed": [], "oom": []}
    for row in rows:
        environment = _environment_of(project, reviewed, row)
        kind = _KINDS.get(row["status"])
        versions = _own(project, reviewed, stem, row["environment"])
        if not is_fresh(load(stem, versions), row, environment):
            kind = "stale"
        if kind:
            named[kind].append(row_name(benchmark, row))
    for kind, names in named.items():
        _note(getattr(reviewed, kind), stem, names)
    lacking = _lacking(benchmark, _owed(project, reviewed, benchmark), rows)
    if lacking:
        reviewed.lacking[stem] = lacking


def _owed(project: Project, reviewed: Review, benchmark: Benchmark) -> list[Case]:
    """The cases that a machine must have: here those that the configuration asks for; of another
    one, whose configuration is not known here, those that the benchmark has by itself."""
    preset, config = reviewed.facts["preset"], project.config
    if not project.is_here(reviewed.machine):
        return load(benchmark.stem).cases(preset)
    asked_for = benchmark.stem in config.stems(preset)
    return benchmark.cases(preset, config.grid_of(benchmark.stem)) if asked_for else []


def _shown(project: Project, reviewed: Review, benchmark: Benchmark) -> list[Case]:
    """The cases whose rows are shown: those that it must have, and of another machine what the
    configuration adds to them."""
    owed = _owed(project, reviewed, benchmark)
    if project.is_here(reviewed.machine):
        return owed
    added = benchmark.cases(reviewed.facts["preset"], project.config.grid_of(benchmark.stem))
    return list(dict.fromkeys([*owed, *added]))


def _review_times(project: Project, reviewed: Review) -> None:
    """Note the rows whose times are below their floors, by what this machine can do at most."""
    ceilings = reviewed.rows.get("ceilings", [])
    limits = plausible.limits_of(ceilings, reviewed.facts.get("environments", {}))
    for stem, rows in reviewed.rows.items():
        benchmark = load(stem, _own(project, reviewed, stem))
        found = [row_name(benchmark, row) for row in rows if plausible.impossible(limits, row)]
        _note(reviewed.impossible, stem, found)


def prune(project: Project, machine: str) -> int:
    """Drop stale rows of cells that the grid no longer has; nothing would measure them again.

    Raises:
        UserError: evidence is damaged.
    """
    reviewed = review(project, machine)
    dropped = 0
    for stem in stems():
        benchmark = load(stem, _own(project, reviewed, stem))
        cases = _shown(project, reviewed, benchmark)
        for folder in (STORE, EVIDENCE):
            evidence = evidence_of(benchmark, project.report_directory / machine, folder)
            dropped += _prune(project, reviewed, evidence, benchmark, cases)
    return dropped


def _prune(
    project: Project, reviewed: Review, evidence: Evidence, benchmark: Benchmark, cases: list[Case]
) -> int:
    if not evidence.path.exists():
        return 0

    def wanted(row: Row) -> bool:
        if asked(benchmark, cases, [row]):
            return True
        environment = row["environment"]
        own = _own(project, reviewed, benchmark.stem, environment)
        return is_fresh(load(benchmark.stem, own), row, environment)

    try:
        return evidence.keep(wanted)
    except DamagedEvidence as damage:
        raise UserError(f"{damage}: nothing is dropped of it") from None


def _environment_of(project: Project, reviewed: Review, row: Row) -> str:
    """The environment that makes a row fresh: this machine's own, here; elsewhere, the row's."""
    here = project.can_measure and project.is_here(reviewed.machine)
    return project.machine.environment if here else row["environment"]


def _lacking(benchmark: Benchmark, cases: Sequence[Case], rows: Sequence[Row]) -> list[dict]:
    """Rows of these cases that are not there: the axes, implementation and phase of each."""
    names = [axis.name for axis in benchmark.axes]
    have = {(*(row[name] for name in names), row["implementation"], row["phase"]) for row in rows}
    return [
        {**case.axes, "implementation": case.implementation, "phase": phase}
        for case in cases
        for phase in benchmark.phases
        if (*(text_of(value) for _, value in case.cell), case.implementation, phase) not in have
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
    if not project.is_here(machine):
        return list(review(project, machine).causes())
    if machine not in project.machines_with_evidence():
        return [Cause(machine, "evidence", "missing", ("this machine has not been measured",))]
    return [*review(project, machine).causes(), *_unwritten(project)]


def out_of_memory(project: Project, machine: str) -> list[Cause]:
    """The rows that say that a device has too little memory: results, but none for ever."""
    found = review(project, machine).oom
    return [Cause(machine, stem, "out of memory", tuple(names)) for stem, names in found.items()]


def _unwritten(project: Project) -> Iterator[Cause]:
    """Evidence that a job would write anew without measuring, so that nothing else names it."""
    for stem, plan in project.plans.items():
        if plan.is_due and not plan.pending and not plan.damaged:
            words = "it is not what the store holds, as the configuration asks for it"
            yield Cause(project.machine.slug, stem, "not as measured", (words,))


def tally(found: Sequence[Cause]) -> list[str]:
    """What is wrong, a line for each kind: how many rows, and of which benchmarks."""
    kinds = dict.fromkeys(cause.kind for cause in found)
    return [_tally_of(kind, [cause for cause in found if cause.kind == kind]) for kind in kinds]


def _tally_of(kind: str, found: Sequence[Cause]) -> str:
    total = sum(len(cause.names) for cause in found)
    where = ", ".join(f"{cause.stem} {len(cause.names)}" for cause in found)
    return f"{kind}: {total} ({where})"
