"""Compare a machine's evidence with today's code: which rows are stale, damaged, red or missing.

Needs no torch: a report renders, and is verified, on a machine that cannot measure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lmperf.benchmark import Benchmark, Case
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence import cost, plausible
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, Facts, empty, read_facts
from lmperf.evidence.keys import is_fresh
from lmperf.evidence.plan import asked, evidence_of, read, row_name
from lmperf.evidence.project import Project
from lmperf.evidence.store import EVIDENCE, STORE, DamagedEvidence, Row, text_of
from lmperf.gate import FAILED

# Kind of fault of a fresh row without a valid result, by its status.
_KINDS = {
    **dict.fromkeys(FAILED, "red gate"),
    **dict.fromkeys(("crash", "timeout"), "failed"),
    "oom": "out of memory",
}
# Kinds of faults that make `verify` fail, in the order in which they are listed. Out of memory is
# not one of them: it is a valid result.
_FAILING = ("red gate", "failed", plausible.KIND, "missing", "stale")


@dataclass(frozen=True)
class Cause:
    """Rows of one benchmark that fail `verify` for the same reason, by name."""

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
        """One line per row."""
        return [f"{self.machine}/{self.stem}: {self.kind}: {name}" for name in self.names]


@dataclass
class Review:
    """The evidence of one machine and what is wrong with it.

    Attributes:
        lost: file that belongs to no benchmark (`machine`, `cost`) -> how it is damaged.
        damaged: stem -> how the evidence of that benchmark is damaged.
        rows: the rows to show, stale ones included, by stem.
        lacking: axes, implementation and phase of each missing row, by stem.
        faults: names of rows by kind of fault and stem.
        cost: what each job took.
    """

    machine: str
    facts: Facts
    lost: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    lacking: dict[str, list[dict]] = field(default_factory=dict)
    faults: dict[str, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    cost: list[Row] = field(default_factory=list)

    @property
    def stale(self) -> dict[str, list[str]]:
        """Names of the rows whose key is not that of today's code or environment, by stem."""
        return self.faults["stale"]

    @property
    def missing(self) -> dict[str, list[str]]:
        """Names of the missing rows, by stem."""
        return self.faults["missing"]

    def add(self, kind: str, benchmark: Benchmark, rows: Iterable[Mapping[str, object]]) -> None:
        """Record rows with a fault; rows of one case and phase share a name, recorded once."""
        if names := list(dict.fromkeys(row_name(benchmark, row) for row in rows)):
            self.faults[kind][benchmark.stem] = names

    def causes(self) -> Iterator[Cause]:
        """Yield everything that makes `verify` fail for this evidence."""
        for stem, reason in (self.lost | self.damaged).items():
            yield Cause(self.machine, stem, "damaged", (reason,))
        for kind in _FAILING:
            yield from self.of_kind(kind)

    def of_kind(self, kind: str) -> Iterator[Cause]:
        """Yield the rows with one kind of fault, by benchmark."""
        for stem, names in self.faults[kind].items():
            yield Cause(self.machine, stem, kind, tuple(names))


class _Machine:
    """One machine with evidence, as today's configuration sees it.

    Raises:
        UserError: there is no evidence of such a machine.
    """

    def __init__(self, project: Project, machine: str):
        self.project, self.name = project, machine
        self.directory = project.report_directory / machine
        self.is_here = project.is_here(machine)
        if machine not in project.machines_with_evidence():
            known = ", ".join(project.machines_with_evidence()) or "none"
            raise UserError(
                f"{self.directory}: no evidence of machine {machine}; there is of: {known}"
            )
        self.facts, self.damage = empty(machine), None
        if not (self.directory / FILE).exists():
            self.damage = f"{self.directory / FILE} is missing"
            return
        try:
            self.facts = read_facts(self.directory, machine)
        except DamagedEvidence as damage:
            self.damage = str(damage)

    def benchmark(self, stem: str, environment: str | None = None) -> Benchmark:
        """A benchmark with its custom implementations and its peers, of the versions measured.

        environment: selects the versions of the peers on another machine; None: any environment.
        """
        config = self.project.config
        if self.is_here:
            return load(stem, config.external(stem))
        known = self.facts["environments"]
        found = known.values() if environment is None else [known.get(environment, {})]
        peers = {name: one for facts in found for name, one in facts.get("peers", {}).items()}
        return load(stem, config.external(stem, peers))

    def required(self, benchmark: Benchmark) -> list[Case]:
        """The cases that must have rows.

        Here these are the configured cases. The configuration of another machine is not known, so
        there they are the benchmark's own.
        """
        preset, config = self.facts["preset"], self.project.config
        if not self.is_here:
            return load(benchmark.stem).cases(preset)
        is_configured = benchmark.stem in config.stems(preset)
        return benchmark.cases(preset, config.grid_of(benchmark.stem)) if is_configured else []

    def shown(self, benchmark: Benchmark) -> list[Case]:
        """The cases whose rows are shown: on another machine also those of today's grid."""
        required = self.required(benchmark)
        if self.is_here:
            return required
        grid = self.project.config.grid_of(benchmark.stem)
        return list(dict.fromkeys([*required, *benchmark.cases(self.facts["preset"], grid)]))

    def is_fresh(self, stem: str, row: Row, environment: str) -> bool:
        """Whether a row has the key that today's code gives it in an environment."""
        return is_fresh(self.benchmark(stem, row["environment"]), row, environment)

    @cached_property
    def environment(self) -> str | None:
        """The environment that fresh rows must have; None: the one in which each was measured."""
        here = self.is_here and self.project.can_measure
        return self.project.machine.environment if here else None


def review(project: Project, machine: str) -> Review:
    """Read a machine's evidence and compare it with today's code and configuration.

    Raises:
        UserError: there is no evidence of such a machine.
    """
    found = _Machine(project, machine)
    reviewed = Review(machine, found.facts, {"machine": found.damage} if found.damage else {})
    for stem in stems():
        _review_benchmark(found, reviewed, stem)
    limits = plausible.limits_of(reviewed.rows.get("ceilings", []), found.facts["environments"])
    for stem, rows in reviewed.rows.items():
        impossible = (row for row in rows if plausible.impossible(limits, row))
        reviewed.add(plausible.KIND, found.benchmark(stem), impossible)
    try:
        reviewed.cost = Cost(found.directory).read()
    except DamagedEvidence as damage:
        reviewed.lost[cost.STEM] = str(damage)
    return reviewed


def _review_benchmark(machine: _Machine, reviewed: Review, stem: str) -> None:
    benchmark = machine.benchmark(stem)
    found = read(benchmark, evidence_of(benchmark, machine.directory))
    if found.faults:
        more = f" (and {len(found.faults) - 1} more)" if len(found.faults) > 1 else ""
        reviewed.damaged[stem] = found.faults[0] + more
    if rows := asked(benchmark, machine.shown(benchmark), found.rows):
        reviewed.rows[stem] = rows
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not machine.is_fresh(stem, row, machine.environment or row["environment"]):
            by_kind["stale"].append(row)
        elif row["status"] in _KINDS:
            by_kind[_KINDS[row["status"]]].append(row)
    for kind, of_kind in by_kind.items():
        reviewed.add(kind, benchmark, of_kind)
    if lacking := _lacking(benchmark, machine.required(benchmark), rows):
        reviewed.lacking[stem] = lacking
        reviewed.add("missing", benchmark, lacking)


def _lacking(benchmark: Benchmark, cases: Sequence[Case], rows: Sequence[Row]) -> list[dict]:
    """The axes, implementation and phase of each missing row of these cases."""
    names = [*(axis.name for axis in benchmark.axes), "implementation", "phase"]
    there = {tuple(row[name] for name in names) for row in rows}
    wanted = [
        {**case.axes, "implementation": case.implementation, "phase": phase}
        for case in cases
        for phase in benchmark.phases
    ]
    return [row for row in wanted if tuple(map(text_of, row.values())) not in there]


def prune(project: Project, machine: str) -> int:
    """Drop stale rows of cells that left the grid; return how many. Nothing measures them again.

    Raises:
        UserError: there is no such machine, or its evidence is damaged.
    """
    found = _Machine(project, machine)
    return sum(_prune(found, stem, folder) for stem in stems() for folder in (STORE, EVIDENCE))


def _prune(machine: _Machine, stem: str, folder: str) -> int:
    benchmark = machine.benchmark(stem)
    evidence = evidence_of(benchmark, machine.directory, folder)
    if not evidence.path.exists():
        return 0
    cases = machine.shown(benchmark)

    def wanted(row: Row) -> bool:
        in_grid = bool(asked(benchmark, cases, [row]))
        return in_grid or machine.is_fresh(stem, row, row["environment"])

    try:
        return evidence.keep(wanted)
    except DamagedEvidence as damage:
        raise UserError(f"{damage}; no row of it was dropped") from None


def causes(project: Project, machine: str) -> list[Cause]:
    """List why a machine's evidence fails `verify`; empty if it passes.

    Raises:
        UserError: there is no evidence of such a machine, and it is not the one at hand.
    """
    if not project.is_here(machine):
        return list(review(project, machine).causes())
    if machine not in project.machines_with_evidence():
        return [Cause(machine, "evidence", "missing", ("this machine has not been measured",))]
    return [*review(project, machine).causes(), *_unwritten(project)]


def out_of_memory(project: Project, machine: str) -> list[Cause]:
    """List the rows that ran out of memory: valid results, which more memory would change."""
    return list(review(project, machine).of_kind("out of memory"))


def _unwritten(project: Project) -> Iterator[Cause]:
    """Yield the benchmarks whose evidence a job would rewrite without measuring anything."""
    for stem, plan in project.plans.items():
        if plan.is_due and not plan.pending and not plan.damaged:
            words = "it differs from the rows in the store that the configuration asks for"
            yield Cause(project.machine.slug, stem, "not as measured", (words,))


def tally(found: Sequence[Cause]) -> list[str]:
    """Sum up causes, in one line per kind: the number of rows, in all and by benchmark."""
    by_kind: dict[str, list[Cause]] = {}
    for cause in found:
        by_kind.setdefault(cause.kind, []).append(cause)
    lines = []
    for kind, of_kind in by_kind.items():
        total = sum(len(cause.names) for cause in of_kind)
        where = ", ".join(f"{cause.stem} {len(cause.names)}" for cause in of_kind)
        lines.append(f"{kind}: {total} ({where})")
    return lines
