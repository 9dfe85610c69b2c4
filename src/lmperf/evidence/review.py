"""Compare a machine's evidence with today's code: find stale, damaged, failed and missing rows.

Imports no torch, so that a machine without torch can render and verify a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from lmperf.benchmark import CPU_DEVICES, Benchmark, Case, Implementation
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence import consistent, cost, plausible, repeatability
from lmperf.evidence.as_read import as_read
from lmperf.evidence.consistent import contradictions
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, Facts, empty, read_facts
from lmperf.evidence.keys import is_fresh
from lmperf.evidence.machine import devices_of, measurable, topology_of
from lmperf.evidence.plan import COPIES_DIFFER, asked, evidence_of, read, row_name
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import Repeated, draw
from lmperf.evidence.reviewed import Cause, Review
from lmperf.evidence.store import EVIDENCE, STORE, DamagedEvidence, Row, text_of
from lmperf.gate import FAILED
from lmperf.measuring.state import DRIFT

# Status of a fresh row without a valid result -> the kind of fault of that row.
_KINDS = {
    **dict.fromkeys(FAILED, "red gate"),
    **dict.fromkeys(("crash", "timeout"), "failed"),
    **dict.fromkeys(("oom", "unchecked"), "out of memory"),
}
# Kinds that `verify` prints without failing: results, and contradictions that measuring again has
# not removed.
SETTLED = f"{consistent.KIND}, measured twice"
_INFORMING = ("out of memory", SETTLED)


class _Machine:
    """A machine with evidence in `report/`, compared with today's code and configuration.

    Raises:
        UserError: `report/` has no evidence of this machine.
    """

    def __init__(self, project: Project, machine: str):
        self.project, self.name = project, machine
        self.directory = project.report_directory / machine
        self.is_here = project.is_here(machine)
        self._benchmarks: dict[tuple[str, str | None], Benchmark] = {}
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

    def unknown(self, folder: str) -> list[Path]:
        """The CSV files in a folder whose name is that of no benchmark."""
        known = {*stems(), cost.STEM, repeatability.STEM}
        return sorted(p for p in (self.directory / folder).glob("*.csv") if p.stem not in known)

    def kind(self, environment: str) -> str:
        """The kind of device of an environment; that of the preset if it is not recorded."""
        kind = self.facts["environments"].get(environment, {}).get("kind")
        return kind if kind in DRIFT else {"gpu": "cuda", "cpu": "cpu"}[self.facts["preset"]]

    def benchmark(self, stem: str, environment: str | None = None) -> Benchmark:
        """A benchmark with its custom implementations and its peers (other projects' code).

        On this machine the peers have the installed versions, on another machine the recorded ones.
        Another machine also has the custom implementations that were recorded there.

        environment: the environment whose recorded versions count; None: those of all environments.
        """
        if (key := (stem, environment)) not in self._benchmarks:
            self._benchmarks[key] = self._loaded(stem, environment)
        return self._benchmarks[key]

    def _loaded(self, stem: str, environment: str | None) -> Benchmark:
        config = self.project.config
        if self.is_here:
            return load(stem, config.external(stem, self._installed))
        known = self.facts["environments"]
        found = known.values() if environment is None else [known.get(environment, {})]
        peers = {name: one for facts in found for name, one in facts.get("peers", {}).items()}
        here = config.external(stem, peers)
        entries = _recorded_entries(found, stem).items()
        theirs = {name: one for name, one in entries if name not in here or here[name].entry != one}
        custom = {name: Implementation(name, of, origin="custom") for name, of in theirs.items()}
        return load(stem, here | custom)

    @cached_property
    def _installed(self) -> dict[str, str]:
        return self.project.config.peer_versions()

    @cached_property
    def _configured(self) -> frozenset[str]:
        stems = self.project.config.stems(self.facts["preset"], self.name, self.is_here)
        return frozenset(stems)

    def required(self, benchmark: Benchmark) -> list[Case]:
        """The cases that must have rows.

        On the machine at hand these are the cases of the configured grid. The grid of another
        machine is unknown, so its required cases are those of the benchmark's default grid.
        """
        preset, config = self.facts["preset"], self.project.config
        if benchmark.stem not in self._configured:
            return []
        if not self.is_here:
            return measurable(benchmark, load(benchmark.stem).cases(preset), self.devices)
        cases = benchmark.cases(preset, config.grid_of(benchmark.stem))
        return measurable(benchmark, cases, self.devices)

    @property
    def devices(self) -> int:
        """The number of devices of the machine, in the environment that had most of them."""
        if self.is_here:
            return self.project.machine.devices
        known = self.facts["environments"].values()
        least = CPU_DEVICES if self.facts["preset"] == "cpu" else 1
        return max(map(devices_of, known), default=least)

    def shown(self, benchmark: Benchmark) -> list[Case]:
        """The cases whose rows the report shows.

        On the machine at hand these are the required cases. On another machine, rows of cells in
        the grid that is configured here are shown as well.
        """
        required = self.required(benchmark)
        if self.is_here:
            return required
        grid = self.project.config.grid_of(benchmark.stem)
        configured = benchmark.cases(self.facts["preset"], grid)
        configured = measurable(benchmark, configured, self.devices)
        return list(dict.fromkeys([*required, *configured]))

    def is_fresh(self, stem: str, row: Row, environment: str) -> bool:
        """Whether the row's stored key equals the key that today's code computes for it.

        environment: the digest of hardware and software to compute the key with.
        """
        known = self.facts["environments"].get(row["environment"], {})
        facts = self.project.machine.facts if self.environment else known
        benchmark = self.benchmark(stem, row["environment"])
        return is_fresh(benchmark, row, environment, topology_of(facts))

    @cached_property
    def environment(self) -> str | None:
        """The environment that a fresh row must have; None: each row may keep its own.

        None on another machine, and without torch.
        """
        here = self.is_here and self.project.can_measure
        return self.project.machine.environment if here else None


def _recorded_entries(environments: Iterable[Facts], stem: str) -> dict[str, str]:
    """Name -> entry of the custom implementations that environments recorded of a benchmark."""
    found = [facts.get("implementations", {}).items() for facts in environments]
    named = {key.partition(".")[::2]: entry for one in found for key, entry in one}
    return {name: entry for (of, name), entry in named.items() if of == stem and name}


def review(project: Project, machine: str) -> Review:
    """Read a machine's evidence and compare it with today's code and configuration.

    Raises:
        UserError: `report/` has no evidence of this machine.
    """
    found = _Machine(project, machine)
    reviewed = Review(machine, found.facts, {"machine": found.damage} if found.damage else {})
    reviewed.unknown = [str(path) for path in found.unknown(EVIDENCE)]
    for stem in stems():
        _review_benchmark(found, reviewed, stem)
    reviewed.at_work.take_permission(found.facts)
    limits = plausible.limits_of(reviewed.rows.get("ceilings", []), found.facts["environments"])
    for stem, rows in reviewed.rows.items():
        impossible = (row for row in rows if plausible.impossible(limits, row))
        reviewed.add(plausible.KIND, found.benchmark(stem), impossible)
    _review_repeats(found, reviewed)
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
    shown = asked(benchmark, machine.shown(benchmark), found.rows)
    if rows := [as_read(row) for row in shown]:
        reviewed.rows[stem] = rows
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not machine.is_fresh(stem, row, machine.environment or row["environment"]):
            by_kind["stale"].append(row)
        else:
            by_kind[_KINDS.get(row["status"], "right")].append(row)
    fresh = by_kind.pop("right", [])
    for kind, of_kind in by_kind.items():
        reviewed.add(kind, benchmark, of_kind)
    reviewed.at_work.add(benchmark, fresh)
    _compare_cells(machine, reviewed, benchmark, fresh)
    if lacking := _lacking(benchmark, machine.required(benchmark), rows):
        reviewed.lacking[stem] = lacking
        reviewed.add("missing", benchmark, lacking)


def _compare_cells(
    machine: _Machine, reviewed: Review, benchmark: Benchmark, rows: Sequence[Row]
) -> None:
    """Record the rows of each environment that contradict one another."""
    environments: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        environments[row["environment"]].append(row)
    found = [
        one
        for name, of_it in environments.items()
        for one in contradictions(benchmark, of_it, machine.kind(name))
    ]
    for kind, settled in ((consistent.KIND, False), (SETTLED, True)):
        of_kind = [one for one in found if one.is_settled == settled]
        if names := [f"{row_name(benchmark, one.slow[0])} {one.words}" for one in of_kind]:
            reviewed.faults[kind][benchmark.stem] = names


def _lacking(benchmark: Benchmark, cases: Sequence[Case], rows: Sequence[Row]) -> list[dict]:
    """Axis values, implementation and phase of each row that these cases lack."""
    names = [*(axis.name for axis in benchmark.axes), "implementation", "phase"]
    there = {tuple(row[name] for name in names) for row in rows}
    wanted = [
        {**case.axes, "implementation": case.implementation, "phase": phase}
        for case in cases
        for phase in benchmark.phases_of(case)
    ]
    return [row for row in wanted if tuple(map(text_of, row.values())) not in there]


def prune(project: Project, machine: str) -> int:
    """Drop the stale rows whose cell is no longer in the grid; return how many were dropped.

    No run would measure such a row again. Files of benchmarks that no longer exist are removed.

    Raises:
        UserError: `report/` has no evidence of this machine, or the evidence is damaged.
    """
    found = _Machine(project, machine)
    dropped = sum(_prune(found, stem, folder) for stem in stems() for folder in (STORE, EVIDENCE))
    for path in (path for folder in (STORE, EVIDENCE) for path in found.unknown(folder)):
        dropped += max(len(path.read_bytes().splitlines()) - 1, 0)
        path.unlink()
        path.with_suffix(".sha256").unlink(missing_ok=True)
    return dropped


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
    """Return the causes for which a machine's evidence fails `verify`; an empty list if it passes.

    Raises:
        UserError: there is no evidence of this machine, and it is not the machine at hand.
    """
    if not project.is_here(machine):
        return list(review(project, machine).causes())
    if machine not in project.machines_with_evidence():
        return [Cause(machine, "evidence", "missing", ("this machine has not been measured",))]
    return [*review(project, machine).causes(), *_unwritten(project)]


def information(project: Project, machine: str) -> list[Cause]:
    """Return what does not make `verify` fail and is worth knowing, by benchmark.

    Rows that ran out of memory, in their calls or their check, which are valid results, and rows
    that contradict others and did so when they were measured again.
    """
    reviewed = review(project, machine)
    return [cause for kind in _INFORMING for cause in reviewed.of_kind(kind)]


def _unwritten(project: Project) -> Iterator[Cause]:
    """Yield what is wrong with the store, and each job's evidence that differs from it.

    Where the store holds all rows, a job would rewrite the evidence without measuring anything.
    """
    slug = project.machine.slug
    for words in project.damage_in_store():
        yield Cause(slug, STORE, "damaged", (f"{words}; the next run repairs it",))
    jobs = [*project.plans.values(), *([project.repeats] if project.repeats_rows else [])]
    for job in jobs:
        stem = job.stem
        for words in job.damaged.get(job.store.path, ())[:1]:
            yield Cause(slug, stem, "damaged", (f"{words}; the next run repairs it",))
        if job.differing:
            names = tuple(", ".join(filter(None, case)) for case in job.differing)
            words = f"{len(names)} rows in store and evidence; the next run measures them again"
            yield Cause(slug, stem, COPIES_DIFFER, names, summary=words)
        elif not job.due and not job.damaged and not job.evidence.holds(job.rows):
            words = "it differs from the rows in the store that the configuration asks for"
            yield Cause(slug, stem, "not as measured", (words,))


def tally(found: Sequence[Cause]) -> list[str]:
    """Return one line per kind of fault: the number of its rows, in total and by benchmark."""
    by_kind: dict[str, list[Cause]] = {}
    for cause in found:
        by_kind.setdefault(cause.kind, []).append(cause)
    lines = []
    for kind, of_kind in by_kind.items():
        total = sum(len(cause.names) for cause in of_kind)
        where = ", ".join(f"{cause.stem} {len(cause.names)}" for cause in of_kind)
        lines.append(f"{kind}: {total} ({where})")
    return lines


def _review_repeats(machine: _Machine, reviewed: Review) -> None:
    """Add the rows that were measured a second time: all of those that today's draw has.

    A configuration that leaves out benchmarks needs no such rows.
    """
    is_full = not machine.is_here or machine.project.config.benchmarks == "all"
    benchmarks = map(machine.benchmark, stems())
    drawn = draw((benchmark, machine.required(benchmark)) for benchmark in benchmarks)
    file = Repeated(machine.directory)
    found = file.reading()
    if found.faults:
        reviewed.lost[repeatability.STEM] = found.faults[0]
    row_of = {file.case_of(row): as_read(row) for row in found.rows}
    by_kind: dict[str, list[str]] = defaultdict(list)
    for one in drawn:
        row = row_of.get(one.texts)
        if row is None:
            by_kind["missing"] += [one.name] if is_full else []
            continue
        reviewed.repeats.setdefault(one.benchmark.stem, []).append(row)
        environment = machine.environment or row["environment"]
        if not machine.is_fresh(one.benchmark.stem, row, environment):
            by_kind["stale"].append(one.name)
        elif row["status"] in _KINDS:
            by_kind[_KINDS[row["status"]]].append(one.name)
    for kind, names in by_kind.items():
        reviewed.add_names(kind, repeatability.STEM, names)
