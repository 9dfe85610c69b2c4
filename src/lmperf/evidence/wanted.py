"""Which benchmarks, cases and phases a command is about: what is asked for, out of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lmperf.benchmark import Case, Timed, Value
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence.plan import Project


@dataclass(frozen=True)
class Wanted:
    """What is asked for; all where it is empty.

    Attributes:
        benchmarks: stems; where there is none, those whose code differs between the versions.
        only: (axis, value): cases that have, of each axis named, one of the values named.
        implementations, phases: names.
    """

    benchmarks: Sequence[str] = ()
    only: Sequence[tuple[str, str]] = ()
    implementations: Sequence[str] = ()
    phases: Sequence[str] = ()


@dataclass(frozen=True)
class Chosen:
    """A benchmark with the cases and, set on it, the phases that are meant."""

    benchmark: Timed
    cases: list[Case]

    @property
    def implementations(self) -> list[str]:
        """The implementations of the cases."""
        return list(dict.fromkeys(case.implementation for case in self.cases))


def timed_benchmarks(project: Project, names: Sequence[str]) -> list[Chosen]:
    """The benchmarks of these stems, or all that the configuration names, with their whole grid.

    Raises:
        UserError: there is no such benchmark, or none that is timed on this machine.
    """
    known = [stem for stem in stems() if isinstance(load(stem), Timed)]
    for name in names:
        if name not in known:
            raise UserError(f"no benchmark {name} that is timed; there are: {', '.join(known)}")
    chosen = names or [stem for stem in project.config.stems(project.preset) if stem in known]
    plans = [project.plan(stem) for stem in dict.fromkeys(chosen)]
    return [Chosen(plan.benchmark, list(plan.cases)) for plan in plans]


def select(found: Sequence[Chosen], wanted: Wanted) -> list[Chosen]:
    """Of each benchmark the cases that are asked for; benchmarks without any are left out.

    Raises:
        UserError: an axis, value, implementation or phase is of no benchmark, or no case is left.
    """
    pairs = [*wanted.only, *(("implementation", name) for name in wanted.implementations)]
    for name, value in pairs:
        _refuse_unknown(found, name, value)
    phases = list(dict.fromkeys(phase for one in found for phase in one.benchmark.phases))
    for phase in wanted.phases:
        if phase not in phases:
            raise UserError(f"--phases: no phase {phase}; there are: {', '.join(phases)}")
    left = [_selected(one, pairs, wanted.phases) for one in found]
    left = [one for one in left if one.cases and one.benchmark.phases]
    if not left:
        raise UserError("no cell of the grid has all of what was asked for")
    return left


def _refuse_unknown(found: Sequence[Chosen], name: str, value: str) -> None:
    there = [named for one in found for case in one.cases if name in (named := _named(case))]
    if not there:
        names = dict.fromkeys(axis.name for one in found for axis in one.benchmark.axes)
        raise UserError(f"--only: no axis {name}; there are: {', '.join(names)}, implementation")
    values = dict.fromkeys(str(named[name]) for named in there)
    if not any(_is(named[name], value) for named in there):
        raise UserError(f"no {name}={value} in the grid; there are: {', '.join(values)}")


def _selected(chosen: Chosen, pairs: Sequence[tuple[str, str]], phases: Sequence[str]) -> Chosen:
    cases = [case for case in chosen.cases if _has(case, pairs)]
    if phases:
        chosen.benchmark.phases = tuple(p for p in chosen.benchmark.phases if p in phases)
    return Chosen(chosen.benchmark, cases)


def _has(case: Case, pairs: Sequence[tuple[str, str]]) -> bool:
    named = _named(case)
    names = {name for name, _ in pairs}
    return all(
        name in named and any(_is(named[name], value) for of, value in pairs if of == name)
        for name in names
    )


def _named(case: Case) -> dict[str, Value]:
    return {**case.axes, "implementation": case.implementation}


def _is(value: Value, text: str) -> bool:
    return str(value).lower() == text.lower()
