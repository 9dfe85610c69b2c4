"""`Project`: a repository with its configuration, its folders, and the plan of each benchmark."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path

from lmperf.benchmarks import load
from lmperf.config import Config, is_slug
from lmperf.custom import check_names
from lmperf.errors import UserError
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, PERMISSIONS, Facts, empty, hardware, read_facts
from lmperf.evidence.machine import (
    Machine,
    measurable,
    preset_of,
    topology_of,
    torch_version,
)
from lmperf.evidence.nodes import machine_of
from lmperf.evidence.plan import FAILURES, Plan, evidence_of
from lmperf.evidence.repeatability import Repeated, Repeats, draw
from lmperf.evidence.store import EVIDENCE, STORE, DamagedEvidence, Row
from lmperf.workflow import TEMPLATES


class Project:
    """A checkout of lmperf, or a repository that uses it: configuration, folders, what to measure.

    Raises:
        UserError: the configuration gives this machine the name of a machine with other hardware.
    """

    def __init__(self, config: Config, root: Path = Path()):
        self.config = config
        self.root = root
        self.machine: Machine = machine_of(config, root)
        self.preset = preset_of(config.preset, self.machine.kind)
        self._require_own_name()

    @property
    def report_directory(self) -> Path:
        return self.root / "report"

    @property
    def own_templates(self) -> Path | None:
        """The folder of the user's templates; None if this checkout's are those of lmperf."""
        own = (self.root / "templates").resolve()
        return own if own.is_dir() and own != TEMPLATES.resolve() else None

    @property
    def directory(self) -> Path:
        """`report/<machine>` of the machine at hand."""
        return self.report_directory / self.machine.slug

    @property
    def store(self) -> Path:
        """`report/<machine>/store` of the machine at hand: every row that was measured here."""
        return self.directory / STORE

    def is_here(self, machine: str) -> bool:
        return machine == self.machine.slug

    @property
    def is_quick(self) -> bool:
        """Whether only the cells of the write-up's own tables are measured (preset `quick`)."""
        return self.config.preset == "quick"

    @property
    def can_measure(self) -> bool:
        return torch_version() is not None

    @property
    def stems(self) -> list[str]:
        """The stems of the benchmarks that are configured for the machine at hand, in order."""
        return self.config.stems(self.preset, self.machine.slug)

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Stem -> plan, for each benchmark to measure here, in order; empty without torch."""
        plans = {stem: self.plan(stem) for stem in self.stems if self.can_measure}
        return {stem: plan for stem, plan in plans.items() if plan.chosen}

    @cached_property
    def repeats(self) -> Repeats:
        """The rows of the benchmarks to measure here that are measured a second time (table R1)."""
        return Repeats(
            tuple(draw((plan.benchmark, plan.cases) for plan in self.plans.values())),
            Repeated(self.directory, STORE),
            Repeated(self.directory),
            self.machine.environment,
            FAILURES if self.config.retry_failed else frozenset(),
            remeasure=self.config.remeasure,
            files_hold=self._files_hold,
            topology=topology_of(self.machine.facts),
        )

    @property
    def repeats_rows(self) -> bool:
        """Whether a run measures rows a second time: only a run of all benchmarks does."""
        is_full = self.config.benchmarks == "all" and not self.is_quick
        return is_full and bool(self.repeats.drawn)

    def plan(self, stem: str) -> Plan:
        """The plan (what is fresh and what to measure) of a benchmark with all implementations.

        Raises:
            UserError: the name of a custom implementation is in use, its module does not exist, or
                the configured grid has no cell.
        """
        benchmark = load(stem, self.config.external(stem))
        check_names(benchmark)
        grid = self.config.grid_of(stem)
        cases = benchmark.cases(self.preset, grid)
        head, devices = benchmark.head_cases(self.preset, grid), self.machine.devices
        if grid and not cases and benchmark.cases(self.preset):
            raise UserError(f"config: grid.{stem} leaves no cell that can be measured; change it")
        return Plan(
            benchmark,
            tuple(measurable(benchmark, cases, devices)),
            evidence_of(benchmark, self.directory, STORE),
            evidence_of(benchmark, self.directory),
            self.machine.environment,
            self.machine.kind,
            FAILURES if self.config.retry_failed else frozenset(),
            head=frozenset(measurable(benchmark, head, devices)),
            quick=self.is_quick,
            remeasure=self.config.remeasure,
            files_hold=self._files_hold,
            topology=topology_of(self.machine.facts),
        )

    def machines_with_evidence(self) -> list[str]:
        """The slugs of the machines that have `machine.json` or evidence in `report/`."""
        found = {path.parent.name for path in self.report_directory.glob(f"*/{FILE}")}
        found |= {
            path.parent.parent.name for path in self.report_directory.glob(f"*/{EVIDENCE}/*.csv")
        }
        return sorted(name for name in found if is_slug(name))

    def known_facts(self) -> tuple[Facts, list[str]]:
        """The facts of this machine from evidence and store, and a message per damaged file."""
        known, damaged = empty(self.machine.slug), []
        for directory in (self.directory, self.store):
            try:
                facts = read_facts(directory, self.machine.slug)
            except DamagedEvidence as damage:
                damaged.append(str(damage))
            else:
                known["environments"] |= facts["environments"]
                for name in PERMISSIONS:  # from the evidence if it has one
                    if name in facts:
                        known.setdefault(name, facts[name])
        return {**known, "preset": self.preset}, damaged

    @property
    def device_uuids(self) -> list[str]:
        """The UUIDs of this machine's CUDA devices; empty if no worker has reported them yet."""
        environments = self.known_facts()[0]["environments"]
        facts = environments.get(self.machine.environment, {})
        return facts.get("uuids") or [uuid for uuid in [facts.get("uuid")] if uuid]

    def known_costs(self) -> list[Row]:
        """The rows of `cost.csv` from the store; from the evidence if those are lost or damaged."""
        for folder in (STORE, EVIDENCE):
            with contextlib.suppress(DamagedEvidence):
                if rows := Cost(self.directory, folder).read():
                    return rows
        return []

    def damage_in_store(self) -> list[str]:
        """How `machine.json` and `cost.csv` in the store are damaged; empty if they are not."""
        found = []
        for read in (
            lambda: read_facts(self.store, self.machine.slug),
            Cost(self.directory, STORE).read,
        ):
            try:
                read()
            except DamagedEvidence as damage:
                found.append(str(damage))
        return found

    @cached_property
    def _files_hold(self) -> bool:
        """Whether `machine.json` and `cost.csv` are undamaged and agree in evidence and store."""
        known, damaged = self.known_facts()
        if damaged or not known["environments"]:
            return not damaged
        costs = self.known_costs()
        for directory, folder in ((self.directory, EVIDENCE), (self.store, STORE)):
            if folder == STORE and not directory.exists():  # a clone has no store
                continue
            environments = read_facts(directory, self.machine.slug)["environments"]
            if self.machine.environment not in environments:
                return False
            try:
                if Cost(self.directory, folder).read() != costs:
                    return False
            except DamagedEvidence:
                return False
        return True

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
