"""Select the benchmarks, cases and phases that a command line asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lmperf.benchmark import Axis, Timed, Value, ranks_of
from lmperf.benchmarks import load, stems
from lmperf.config.axis_values import canonical, value_of
from lmperf.errors import UserError, meant
from lmperf.evidence.cases import measurable
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project

THERE = "there are:"
IMPLEMENTATION = "implementation"


@dataclass(frozen=True)
class Wanted:
    """The axis values, implementations and phases that a command line selects.

    Attributes:
        only: (axis, value) pairs: for each axis in them, a case must have one of the values given
            for this axis. If empty, all values.
        implementations: names of the implementations; if empty, all.
        phases: names of the phases; if empty, all.
    """

    only: Sequence[tuple[str, str]] = ()
    implementations: Sequence[str] = ()
    phases: Sequence[str] = ()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of `only`, and one for each of `implementations`."""
        return [*self.only, *((IMPLEMENTATION, name) for name in self.implementations)]


def timed_plans(project: Project, names: Sequence[str]) -> list[Plan]:
    """Return the plans of the timed benchmarks with these stems.

    names: stems; if empty, all timed benchmarks that the configuration runs.

    Raises:
        UserError: a name is not the stem of a timed benchmark.
    """
    timed = [stem for stem in stems() if isinstance(load(stem), Timed)]
    for name in names:
        if name not in timed:
            raise UserError(f"there is no timed benchmark {name}; {meant(name, timed, THERE)}")
    if names:
        return [plan_with_cases(project, stem) for stem in dict.fromkeys(names)]
    plans = [project.plan(stem) for stem in project.stems if stem in timed]
    return [plan for plan in plans if plan.cases]


def plan_with_cases(project: Project, stem: str) -> Plan:
    """Return the plan of a benchmark.

    Raises:
        UserError: the machine has too few devices for it, or the preset no cells.
    """
    plan = project.plan(stem)
    _require_devices(project, stem, plan.benchmark.least_devices)
    if not plan.cases:
        raise UserError(f"{stem} has no cells for the preset {project.preset}")
    return plan


def _require_devices(project: Project, what: str, devices: int) -> None:
    here = project.machine.devices
    if devices > here:
        raise UserError(f"{what} needs {devices} devices; this machine has {here}")


def beyond_the_grid(project: Project, plan: Plan, wanted: Wanted) -> Plan:
    """Return a plan with the cells that a command line names, also those outside the grid.

    If the grid lacks a named value, or has it only in other cells, the named values replace those
    of their axes in every grid of the preset, as `--config grid.STEM.AXIS=[VALUE]` does. The grid
    decides what the report has; a cell that somebody names is measured in any case.

    Raises:
        UserError: an axis cannot have a value that is given for it, or no cell can have all.
    """
    benchmark, config = plan.benchmark, project.config
    axes = {axis.name: axis for axis in benchmark.axes}
    named: dict[str, dict[Value, None]] = {}
    for name, text in wanted.pairs:
        if name in axes:
            value = _in_grid([plan], name, text)
            value = _read(value_of, axes[name], text) if value is None else value
        elif name == IMPLEMENTATION and text in benchmark.known:
            value = text
        else:  # `select` reports it
            continue
        named.setdefault(name, {})[value] = None
    cells = [case.columns for case in plan.cases if case.is_in(named)]
    if all(values.keys() == {cell[name] for cell in cells} for name, values in named.items()):
        return plan
    grid = config.grid_of(benchmark.stem) | {name: [*values] for name, values in named.items()}
    cases = benchmark.cases(project.preset, grid)
    if not cases:
        raise UserError("no cell can have all the values that were given")
    measured = measurable(benchmark, cases, project.machine.devices)
    if not measured:
        least = min(ranks_of(benchmark, case) for case in cases)
        _require_devices(project, f"{benchmark.stem} with {least} ranks", least)
    return replace(plan, cases=tuple(measured))


def chosen(project: Project, plan: Plan, wanted: Wanted) -> Plan:
    """Return a plan with the wanted cases and phases, also with cases outside the grid.

    Raises:
        UserError: as `beyond_the_grid` and `select`.
    """
    (selected,) = select([beyond_the_grid(project, plan, wanted)], wanted)
    return selected


def select(plans: Sequence[Plan], wanted: Wanted) -> list[Plan]:
    """Reduce plans to the wanted cases and phases; drop a plan that has none left.

    Raises:
        UserError: an axis, value, implementation or phase is unknown, or no case is left.
    """
    axes = dict.fromkeys(axis.name for plan in plans for axis in plan.benchmark.axes)
    names = [*axes, IMPLEMENTATION]
    values: dict[str, set[Value]] = {}
    for name, text in wanted.pairs:
        if name not in names:
            raise UserError(f"--only: no axis {name}; {meant(name, names, THERE)}")
        if (value := _in_grid(plans, name, text)) is None:
            there = meant(text, _values(plans, name), THERE)
            raise UserError(f"no {name}={text} in the grid; {there}")
        values.setdefault(name, set()).add(value)
    phases = list(dict.fromkeys(phase for plan in plans for phase in plan.benchmark.phases))
    for phase in wanted.phases:
        if phase not in phases:
            raise UserError(f"--phases: no phase {phase}; {meant(phase, phases, THERE)}")
    left = [_selected(plan, values, wanted.phases) for plan in plans]
    left = [plan for plan in left if plan.cases and plan.benchmark.phases]
    if not left:
        raise UserError("no cell of the grid has all the values that were given")
    return left


def _in_grid(plans: Sequence[Plan], name: str, text: str) -> Value | None:
    """Return the axis value in the grid that a text stands for; None if the grid has none.

    Upper and lower case of a value are the same; an alias must be spelled exactly.
    """
    values = _values(plans, name)
    axes = {axis.name: axis for plan in plans for axis in plan.benchmark.axes}
    spelled = {str(value).lower(): value for value in values}
    if text.lower() in spelled:
        return spelled[text.lower()]
    if name in axes and axes[name].aliases:
        text = _read(canonical, axes[name], text)
    return text if text in values else None


def _read(read: Callable[[Axis, str], Value], axis: Axis, text: str) -> Value:
    try:
        return read(axis, text)
    except ValueError as error:
        raise UserError(f"--only: {axis.name} {error}") from None


def _values(plans: Sequence[Plan], name: str) -> list[Value]:
    cells = (case.columns for plan in plans for case in plan.cases)
    return list(dict.fromkeys(cell[name] for cell in cells if name in cell))


def _selected(plan: Plan, values: Mapping[str, set[Value]], phases: Sequence[str]) -> Plan:
    cases = tuple(case for case in plan.cases if case.is_in(values))
    if phases:
        left = tuple(phase for phase in plan.benchmark.phases if phase in phases)
        plan = plan.with_benchmark(phases=left)
    return replace(plan, cases=cases)
