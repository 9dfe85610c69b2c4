"""`Project`: a repository with its configuration, its folders, and the plan of each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lmperf import names
from lmperf.benchmark import Benchmark, Case
from lmperf.benchmarks import load
from lmperf.config.machine_names import is_slug
from lmperf.config.model import Config
from lmperf.errors import UserError
from lmperf.evidence.cases import measurable
from lmperf.evidence.facts import FILE, Facts, read_facts
from lmperf.evidence.machine import GPU_PRESETS, Machine, accelerator, detect, elsewhere, preset_of
from lmperf.evidence.plan import Plan
from lmperf.evidence.recorded_machine import RecordedMachine
from lmperf.evidence.repeatability import Repeats
from lmperf.evidence.rows import FAILURES
from lmperf.evidence.store import EVIDENCE, files_of
from lmperf.machine.repository import commit_facts
from lmperf.machine.software import torch_version
from lmperf.own.check import check_names
from lmperf.workflow import TEMPLATES


class Project:
    """A checkout of lmperf, or a repository that uses it: configuration, folders, what to measure.

    Raises:
        UserError: the configuration gives this machine the name of a machine with other hardware,
            or asks for GPUs where there are none and names no machine.
    """

    def __init__(self, config: Config, root: Path = Path()):
        self.config = config
        names.call(config.names)
        self.root = root
        self.machine = self._machine()
        recorded, _ = read_facts(self.directory, self.machine.slug)
        self.preset = preset_of(config.preset, self.machine.kind, recorded["preset"])
        self._require_own_name([*recorded["environments"].values()])

    def _machine(self) -> Machine:
        preset, name = self.config.preset, self.config.machine
        if preset not in GPU_PRESETS or accelerator() == "cuda":
            return detect(preset, name)
        if name == "auto":
            raise UserError(
                f"config: preset is {preset}, but torch finds no CUDA device here; use auto or cpu."
                " On the login node of a cluster name the machine that measures, as in machine:"
                " h100"
            )
        facts, _ = read_facts(self.report_directory / name, name)
        recorded = [{}, *facts["environments"].values()]
        return elsewhere(name, recorded[-1])

    @property
    def report_directory(self) -> Path:
        """The folder of the evidence and write-ups of all machines."""
        return self.root / self.config.report

    @property
    def site_directory(self) -> Path:
        return self.root / self.config.site

    def commit_facts(self) -> tuple[dict[str, Any], str]:
        """The commit of the code that measures; see `machine.commit_facts`."""
        return commit_facts(self.root, ("config", self.config.report, self.config.site))

    @property
    def own_templates(self) -> Path | None:
        """The folder of the user's templates; None if this checkout's are those of lmperf."""
        own = (self.root / "templates").resolve()
        return own if own.is_dir() and own != TEMPLATES.resolve() else None

    @property
    def directory(self) -> Path:
        """`report/<machine>` of the machine at hand."""
        return self.report_directory / self.machine.slug

    def is_here(self, machine: str) -> bool:
        return machine == self.machine.slug

    @property
    def is_quick(self) -> bool:
        """Whether only the cells of the write-up's own tables are measured (preset `quick`)."""
        return self.config.preset == "quick"

    @property
    def can_measure(self) -> bool:
        return torch_version() is not None

    def require_torch(self) -> None:
        """Raise UserError unless torch is installed."""
        if not self.can_measure:
            raise UserError("cannot measure: torch is not installed; run lmperf doctor")

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
        """The rows that a full run measures a second time (table R1)."""
        return Repeats(self.directory, tuple(self.plans.values()))

    @property
    def repeats_rows(self) -> bool:
        """Whether a run measures rows a second time: only a run of all benchmarks does."""
        is_full = self.config.benchmarks == "all" and not self.is_quick
        return is_full and self.repeats.is_possible

    @cached_property
    def due_jobs(self) -> dict[str, str]:
        """Stem -> what it measures, for each benchmark that has something to measure, and R1."""
        jobs = {stem: plan.summary for stem, plan in self.plans.items() if plan.is_due}
        if self.repeats_rows and self.repeats.is_due:
            jobs["repeatability"] = self.repeats.summary
        return jobs

    def plan(self, stem: str) -> Plan:
        """The plan (what is fresh and what to measure) of a benchmark with all implementations.

        Raises:
            UserError: the name of a custom implementation is in use, its module does not exist, or
                the configured grid has no cell.
        """
        benchmark = load(stem, self.config.external(stem))
        check_names(benchmark)
        grid = self.config.grid_of(stem)
        if grid and not benchmark.cases(self.preset, grid) and benchmark.cases(self.preset):
            raise UserError(f"config: grid.{stem} leaves no cell that can be measured; change it")
        return self._plan_here(benchmark, self.preset)

    def plan_of(self, machine: RecordedMachine, stem: str) -> Plan:
        """The plan of a benchmark on a machine with evidence.

        Its cases are those whose rows the report shows, the chosen ones those that must have rows.
        """
        if not self.is_here(machine.slug):
            return self._plan_elsewhere(machine, stem)
        plan = self._plan_here(load(stem, self.config.external(stem)), machine.preset)
        is_asked = stem in self.config.stems(machine.preset, machine.slug)
        plan = plan if is_asked else replace(plan, cases=())
        return plan if self.can_measure else replace(plan, machine=machine)

    def _plan_here(self, benchmark: Benchmark, preset: str) -> Plan:
        """The plan of a benchmark on the machine at hand, with the configured grid of a preset."""
        grid, machine = self.config.grid_of(benchmark.stem), self.machine
        emulates = machine.emulates_bf16 and "dtype" not in grid
        cases = measurable(benchmark, benchmark.cases(preset, grid), machine.devices, emulates)
        return Plan(
            benchmark,
            tuple(cases),
            files_of(benchmark, self.directory),
            machine,
            self._head(benchmark, preset, cases),
            self.is_quick,
            frozenset(cases).intersection(benchmark.cases_in(benchmark.repeated, preset, grid)),
            frozenset(FAILURES.values() if self.config.retry_failed else ()),
        )

    def _plan_elsewhere(self, machine: RecordedMachine, stem: str) -> Plan:
        """The plan of a benchmark on another machine, whose configuration is unknown.

        It must have rows of the default grid. Rows of cells in the grid that is configured here are
        shown as well.
        """
        config, preset = self.config, machine.preset
        own, benchmark = load(stem), machine.benchmark(stem)
        is_asked = stem in config.stems(preset, machine.slug, here=False)
        required = own.cases(preset) if is_asked else []
        required = measurable(own, required, machine.devices, machine.emulates_bf16)
        configured = benchmark.cases(preset, config.grid_of(stem))
        configured = measurable(benchmark, configured, machine.devices)
        cases = tuple(dict.fromkeys([*required, *configured]))
        files = files_of(benchmark, machine.directory)
        return Plan(benchmark, cases, files, machine, frozenset(required), quick=True)

    def _head(self, benchmark: Benchmark, preset: str, cases: Iterable[Case]) -> frozenset[Case]:
        """Those of the cases that a quick run measures, and other runs first.

        They are all cases of a benchmark without a head if the configuration lists it.
        """
        grid = self.config.grid_of(benchmark.stem)
        head = frozenset(cases).intersection(benchmark.head_cases(preset, grid))
        is_listed = self.is_quick and self.config.benchmarks != "all"
        return head or frozenset(cases if is_listed else ())

    def machines_with_evidence(self) -> list[str]:
        """The slugs of the machines that have `machine.json` or evidence in `report/`."""
        return sorted(filter(is_slug, self._folders_with_evidence()))

    def misnamed(self) -> list[Path]:
        """Folders in `report/` with evidence that is not shown: their names are no machine's."""
        folders = sorted(self._folders_with_evidence())
        return [self.report_directory / name for name in folders if not is_slug(name)]

    def _folders_with_evidence(self) -> set[str]:
        folders = {path.parent for path in self.report_directory.glob(f"*/{FILE}")}
        folders |= {path.parents[1] for path in self.report_directory.glob(f"*/{EVIDENCE}/*.csv")}
        return {path.name for path in folders}

    def known_facts(self) -> Facts:
        """The facts of this machine; none of earlier environments if the file is damaged."""
        facts, _ = read_facts(self.directory, self.machine.slug)
        return facts | {"preset": self.preset}

    def _require_own_name(self, environments: Sequence[Facts]) -> None:
        recorded = [(facts.get("kind"), facts.get("device")) for facts in environments]
        here = self.machine.kind, self.machine.facts["device"]
        if self.machine.runs_here and recorded and here not in recorded:
            raise UserError(
                f"config: machine is {self.machine.slug!r}, which is the name of another one"
                f" ({recorded[0][1]}); this one ({here[1]}) needs a name of its own:"
                " give it a new one, or leave machine out"
            )
