"""Compare a machine's evidence with today's code: find stale, damaged, failed and missing rows.

Imports no torch, so that a machine without torch can render and verify a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmperf.benchmark import Benchmark, Case
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence import plausible
from lmperf.evidence.cases import asked, case_of_row, texts_of
from lmperf.evidence.facts import FILE, Facts, read_facts, write_facts
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.recorded_machine import RecordedMachine
from lmperf.evidence.repeatability import BENCHMARK, second_times
from lmperf.evidence.repeatability import STEM as REPEATED
from lmperf.evidence.rows import LOADED, OOM, fault_kind, readable, row_name
from lmperf.evidence.store import COST, COST_COLUMNS, Row, RowFiles, is_ahead
from lmperf.evidence.syntax import digest

AHEAD = "measured ahead of the clock"
# Kinds for which `verify` fails, in the order in which it lists them; it lists OOM only.
OF_ROWS = ("failed check", "failed", plausible.KIND, LOADED, "missing", "stale", AHEAD)


@dataclass(frozen=True)
class Cause:
    """The names of the rows of one benchmark that fail `verify` for the same reason."""

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
        """One line of text for each row, as `verify --verbose` prints them."""
        return [f"{self.machine}/{self.stem}: {self.kind}: {name}" for name in self.names]


@dataclass
class Review:
    """The evidence of one machine and what is wrong with it.

    Attributes:
        damaged: stem of a benchmark, `machine`, `cost` or `repeatability` -> what of its evidence
            is damaged, so not used.
        rows: stem -> the rows that the report shows, stale rows included.
        stale: the keys of the rows that would get another one today.
        faults: the rows that are not right or out of memory, by kind and benchmark.
        cost: one row per measuring job.
        repeats: stem -> the rows of a benchmark that were measured a second time.
    """

    machine: str
    facts: Facts
    damaged: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    faults: list[Cause] = field(default_factory=list)
    cost: list[Row] = field(default_factory=list)
    repeats: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, kind: str, stem: str, names: Iterable[str]) -> None:
        """Record names of rows with a fault, each name once."""
        if distinct := tuple(dict.fromkeys(names)):
            self.faults.append(Cause(self.machine, stem, kind, distinct))

    def of_kinds(self, kinds: Iterable[str]) -> list[Cause]:
        """Return the faults of these kinds, kind by kind."""
        return [cause for kind in kinds for cause in self.faults if cause.kind == kind]

    @property
    def reason(self) -> str:
        """Why rows are published although they are not right; empty if nobody gave a reason."""
        return (self.facts.get("anyway") or {}).get("reason", "") if self.tally else ""

    @property
    def is_allowed(self) -> bool:
        """Whether the reason was given for exactly the rows that are not right."""
        return bool(self.reason) and self.facts["anyway"].get("of") == self._digest

    @property
    def tally(self) -> list[str]:
        """One line per kind of fault of the rows, which the write-up shows."""
        return tally(self.of_kinds(OF_ROWS))

    @property
    def _digest(self) -> str:
        return digest(
            repr(sorted(line for cause in self.of_kinds(OF_ROWS) for line in cause.lines))
        )

    def allow(self, directory: Path, reason: str) -> None:
        """Record in `machine.json` why rows are published although they are not right.

        `verify` accepts it for exactly the rows that are not right now.

        Raises:
            UserError: the reason is empty.
        """
        if not reason.strip():
            raise UserError("--anyway: the reason must not be empty; the write-up shows it")
        self.facts["anyway"] = {"reason": reason.strip(), "of": self._digest}
        write_facts(directory, self.facts)


def review(project: Project, machine: str) -> Review:
    """Read a machine's evidence and compare it with today's code and configuration.

    Raises:
        UserError: `report/` has no evidence of this machine.
    """
    directory = project.report_directory / machine
    if machine not in project.machines_with_evidence():
        others = ", ".join(project.machines_with_evidence()) or "none"
        raise UserError(f"{directory}: no evidence of machine {machine}; there is of: {others}")
    facts, damage = read_facts(directory, machine)
    if not (directory / FILE).exists():
        damage = f"{directory / FILE} is missing"
    reviewed = Review(machine, facts, {"machine": damage} if damage else {})
    recorded = RecordedMachine(machine, directory, facts, project.config)
    for stem in stems():
        _review_benchmark(project.plan_of(recorded, stem), reviewed)
    limits = plausible.limits_of(reviewed.rows.get("ceilings", []), facts["environments"])
    for stem, rows in reviewed.rows.items():
        names = [row_name(load(stem), row) for row in rows if plausible.impossible(limits, row)]
        reviewed.add(plausible.KIND, stem, names)
    _review_repeats(directory, reviewed)
    return reviewed


def _review_repeats(directory: Path, reviewed: Review) -> None:
    second = second_times(directory)
    again, damage = second.published()
    for stem in stems():
        rows = [row for row in again if row[BENCHMARK] == stem]
        rows, unread = readable(load(stem), rows, second.path)
        damage += [unread] * bool(unread)
        if rows:
            reviewed.repeats[stem] = rows
    reviewed.cost, damaged = RowFiles(directory, COST, COST_COLUMNS).published()
    reviewed.damaged |= {stem: why[0] for stem, why in ((REPEATED, damage), (COST, damaged)) if why}


def _review_benchmark(plan: Plan, reviewed: Review) -> None:
    benchmark, stem = plan.benchmark, plan.stem
    published, damage = plan.files.published()
    published = asked(benchmark, plan.cases, published)
    rows, unread = readable(benchmark, published, plan.files.path)
    damage += [unread] * bool(unread)
    if damage:
        reviewed.damaged[stem] = damage[0]
    if rows:
        reviewed.rows[stem] = rows
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind[fault_kind(row) if plan.is_fresh(row) else "stale"].append(row)
        if is_ahead(row.get("measured_at", "")):
            by_kind[AHEAD].append(row)
    reviewed.stale |= {row["key"] for row in by_kind["stale"]}
    if rows or not damage:  # a damaged file has no rows, which is said
        by_kind["missing"] = _lacking(benchmark, plan.chosen, published)
    for kind in (*OF_ROWS, OOM):
        reviewed.add(kind, stem, (row_name(benchmark, row) for row in by_kind[kind]))


def _lacking(benchmark: Benchmark, cases: Iterable[Case], rows: Iterable[Row]) -> list[dict]:
    """Axis values, implementation and phase of each row that these cases lack."""
    there = {(case_of_row(benchmark, row), row["phase"]) for row in rows}
    return [
        {**case.columns, "phase": phase}
        for case in cases
        for phase in benchmark.phases_of(case)
        if (texts_of(case), phase) not in there
    ]


def causes(project: Project, reviewed: Review) -> list[Cause]:
    """Return the causes for which evidence fails `verify`; an empty list if it passes."""
    machine = reviewed.machine
    damaged = [Cause(machine, stem, "damaged", (why,)) for stem, why in reviewed.damaged.items()]
    unwritten = _unwritten(project) if project.is_here(machine) else ()
    return [*damaged, *reviewed.of_kinds(OF_ROWS), *unwritten]


def _unwritten(project: Project) -> Iterator[Cause]:
    """Yield the views that a run would write without measuring, and rows without a second time."""
    slug = project.machine.slug
    for stem, plan in project.plans.items():
        if plan.is_due and not plan.due:
            words = "it differs from the rows that were measured; make report writes it again"
            yield Cause(slug, stem, "not as measured", (words,))
    if project.repeats_rows and (due := project.repeats.due):
        names = tuple(f"{plan.stem}: {row_name(plan.benchmark, row)}" for plan, _, row in due)
        yield Cause(slug, REPEATED, "missing", names)


def tally(faults: Sequence[Cause]) -> list[str]:
    """Return one line per kind of fault: the number of its rows, in total and by benchmark."""
    by_kind: dict[str, list[Cause]] = {}
    for cause in faults:
        by_kind.setdefault(cause.kind, []).append(cause)
    lines = []
    for kind, of_kind in by_kind.items():
        total = sum(len(cause.names) for cause in of_kind)
        where = ", ".join(f"{cause.stem} {len(cause.names)}" for cause in of_kind)
        lines.append(f"{kind}: {total} ({where})")
    return lines
