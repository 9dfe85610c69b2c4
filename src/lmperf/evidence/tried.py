"""Select what `lmperf try` measures: where it checks, where it times, and beside what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from lmperf.benchmark import Case, Trial, is_ranked
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.wanted import Wanted, chosen
from lmperf.transformer.sizes import SIZES

# The share of the usual duration for which train steps are timed.
_SHARE = 1 / 3
# About how many seconds it takes to import PyTorch in two processes, to start ranks, to prepare a
# case, to compile an implementation, and to warm up and profile a phase.
_IMPORT_S, _RANKS_S, _PREPARE_S, _COMPILE_S, _PHASE_S = 10.0, 15.0, 0.5, 8.0, 1.5

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Tried:
    """What `lmperf try` measures.

    Attributes:
        check: where the custom implementation is checked before anything is timed.
        plan: the cases that are timed.
        beside: the names of the implementations beside it.
        cells: (axis, value) pairs of each cell that is timed.
    """

    check: Case
    plan: Plan
    beside: Sequence[str]
    cells: Sequence[Pairs]

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        from lmperf.measuring.rounds import is_back_to_back, pace_of  # slow to import

        benchmark, kind = self.plan.benchmark, self.plan.machine.kind
        pace = pace_of(benchmark.clock, kind, benchmark.steps, share=benchmark.share)
        compiled = sum(
            benchmark.implementation(name).compiles for name in self.plan.implementations
        )
        total = _IMPORT_S + _RANKS_S * is_ranked(benchmark) + _COMPILE_S * compiled
        for group in benchmark.groups(self.plan.cases):
            total += _PREPARE_S * len(group)
            for phase in benchmark.phases:
                timed = [case for case in group if phase in benchmark.phases_of(case)]
                steps_s = 2 * (pace.lead_s + pace.visit_s) * len(timed)
                times_s = steps_s if is_back_to_back(benchmark, phase) else pace.cap_s
                total += times_s + _PHASE_S if timed else 0.0
        return total


def tried(
    project: Project, plan: Plan, name: str, wanted: Wanted, peers: Sequence[str], quick: bool
) -> Tried:
    """Return what to measure of a custom implementation in a benchmark's plan.

    name: of the custom implementation. wanted: its `only` replaces values of the cells, its
    implementations and phases those of the benchmark's `trials`. peers: what is measured beside
    it; empty: as declared. quick: whether to time the smallest cell alone.

    Raises:
        UserError: as `wanted.select`.
    """
    trial = plan.benchmark.trials.get("cpu" if project.preset == "cpu" else "gpu", Trial())
    names = plan.benchmark.known
    declared = [peer for peer in trial.beside if peer in names]
    beside = wanted.implementations or peers or declared
    least = [(axis, str(value)) for axis, value in trial.least.items()]
    smallest = chosen(project, plan, Wanted(_filled(wanted.only, least), [name]))
    check = min(smallest.cases, key=_work)
    shown = [check] if quick else _shown(plan, name, trial)
    cells = list(dict.fromkeys(_filled(wanted.only, _pairs(case)) for case in shown))
    mine = [variant for variant in (name, f"{name}_compiled") if variant in names]
    timed, phases = [*dict.fromkeys([*beside, *mine])], wanted.phases or trial.phases
    parts = [chosen(project, plan, Wanted(cell, timed, phases)) for cell in cells]
    cases = dict.fromkeys(case for part in parts for case in part.cases)
    plan = replace(parts[0], cases=tuple(cases))
    return Tried(check, plan.with_benchmark(share=_SHARE), beside, cells)


def _shown(plan: Plan, name: str, trial: Trial) -> list[Case]:
    """The cases of an implementation that are timed: in the head, and in the trial's other cells.

    The values of a configuration may leave out some.
    """
    cases = [case for case in plan.cases if case.implementation == name]
    head = {case.cell for case in plan.head}
    shown = [next((case for case in cases if case.cell in head), cases[0])]
    for part in trial.more:
        shown += [case for case in cases if case.is_in(part)][:1]
    return shown


def _pairs(case: Case) -> Pairs:
    return [(axis, str(value)) for axis, value in case.cell]


def _filled(only: Pairs, more: Pairs) -> Pairs:
    """The pairs of `only`, and those of the axes that are not in it."""
    given = {axis for axis, _ in only}
    return (*only, *(pair for pair in more if pair[0] not in given))


def _work(case: Case) -> int:
    """The product of the values of a cell's integer axes, and of its model's parameters."""
    numbers = [value for value in case.axes.values() if type(value) is int]
    size = SIZES.get(str(case.axes.get("size")))
    return prod(numbers) * (size.parameters() if size else 1)
