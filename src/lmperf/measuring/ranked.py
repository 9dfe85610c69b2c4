"""Prepares, checks and times the cases of a ranked benchmark, in the worker that owns the ranks.

The worker decides the seeds and the number of calls, and asks every rank to run them. The slowest
rank decides the time of a call, the worst rank an error, and the largest one the memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lmperf.benchmark import Case, Phase, Workload, ranks_of
from lmperf.gate import Gate, excess
from lmperf.measuring.clock import Slice
from lmperf.measuring.prepared import Prepared
from lmperf.measuring.rank_group import RankGroup, RankGroups

Ask = Callable[..., list[Any]]


@dataclass
class _OnRanks(Workload):
    """A workload whose calls run on the ranks of a group.

    Attributes:
        ask: sends a request about the case to all ranks, and returns their results.
        requested: bytes of live tensors on the devices of all ranks after the last slice.
    """

    ask: Ask = field(kw_only=True)
    requested: int = 0


class _RanksClock:
    """Asks the ranks to time a phase; has the methods of `clock.Clock` that `Prepared` calls."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def new_seed(self) -> int:
        """Return a seed that nobody can predict."""
        return self._random.getrandbits(31)

    def slice(self, workload: _OnRanks, name: str, calls: int, checked: bool) -> Slice:
        found = workload.ask("slice", name, calls, checked, self.new_seed())
        workload.requested = sum(one["requested"] for one in found)
        return Slice(
            times=longest([one["times"] for one in found]),
            host=longest([one["host"] for one in found]),
            host_bound=any(one["host_bound"] for one in found),
            changed_settings=set().union(*(one["changed_settings"] for one in found)),
        )

    def warm_up(self, workload: _OnRanks, name: str, least_ms: float) -> tuple[float, float]:
        found = workload.ask("warm_up", name, least_ms, self.new_seed())
        call_ms, with_overhead_ms = map(max, zip(*found, strict=True))
        return call_ms, with_overhead_ms

    def sustain(
        self, workload: _OnRanks, name: str, steps: int
    ) -> tuple[list[float], list[float], None]:
        found = workload.ask("sustain", name, steps, self.new_seed())
        times, calls = zip(*found, strict=True)
        return step_times(times), longest(calls), None

    def host_and_loop(
        self, workload: _OnRanks, name: str, call_ms: float, saved_bytes: float
    ) -> tuple[float | None, float | None]:
        found = workload.ask("host_and_loop", name, call_ms, saved_bytes, self.new_seed())
        host, loop = zip(*found, strict=True)
        return (None, None) if None in host else (max(host), max(loop))


class RankedPrepared(Prepared):
    """Prepares and times the cases of a ranked benchmark; arguments as of `Prepared`.

    groups: the rank groups of this worker.
    """

    def __init__(self, groups: RankGroups, *arguments: Any):
        super().__init__(*arguments)
        self._groups = groups
        self._declared: set[RankGroup] = set()

    def _new_clock(self) -> _RanksClock:
        return _RanksClock()

    def _workload_of(self, case: Case, shared: dict[str, Any]) -> Workload:
        group = self._groups.of(ranks_of(self._benchmark, case))
        if group not in self._declared:
            made_of = self._benchmark.entry, self._benchmark.stem, self._benchmark.external
            group.ask("declare", *made_of, self._seed)
            self._declared.add(group)

        def ask(request: str, *arguments: Any) -> list[Any]:
            return group.ask(request, case, *arguments)

        first, *_ = found = ask("prepare")
        work = _OnRanks({}, ask=ask, compiles=first["compiles"])
        work.columns = largest([one["columns"] for one in found])
        work.phases = {
            name: Phase(lambda _, name=name: ask("call", name) and None, **of_phase)
            for name, of_phase in first["phases"].items()
        }
        if first["has_gate"]:
            work.gate = lambda names: _gated(work, *names)
        if first["has_check"]:
            work.check = lambda name, _: worst_gate(ask("check", name))
        return work

    def _memory_of(self, workload: _OnRanks, phase: str) -> dict[str, Any]:
        found = workload.ask("memory", phase, self._clock.new_seed())
        live = [one.pop("live_bytes", []) for one in found]
        # Summed, so that a leak on any rank shows.
        return {**largest(found), "live_bytes": [sum(each) for each in zip(*live, strict=True)]}

    def _requested(self, workload: _OnRanks) -> int:
        return workload.requested


def _gated(work: _OnRanks, name: str) -> Gate:
    found = work.ask("gate", name)
    work.columns = largest([one["columns"] for one in found])
    return worst_gate(found)


def longest(times: Sequence[Sequence[float]]) -> list[float]:
    """Return the ms of each call on its slowest rank, from the ms on each rank."""
    return [max(each) for each in zip(*times, strict=True)]


def step_times(times: Sequence[Sequence[float]]) -> list[float]:
    """Return the ms between the ends of steps back to back; a step ends on its last rank.

    times: the ms of each step, on each rank; the first step begins on all ranks at once.
    """
    ends = np.cumsum(np.array(times), axis=1).max(axis=0)
    return np.diff(ends, prepend=0.0).tolist()


def largest(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of rank 0, with each number replaced by the largest over the ranks."""
    return {
        name: max(one[name] for one in columns) if _is_number(value) else value
        for name, value in columns[0].items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def worst_gate(found: Sequence[Mapping[str, Any]]) -> Gate:
    """Return the gate of all ranks: of each error the one that exceeds its bound the most.

    found: `errors`, `bounds`, `where` and `pytorch` of each rank's gate.
    """
    errors: dict[str, float] = {}
    bounds: dict[str, float] = {}
    where: dict[str, str] = {}
    pytorch: dict[str, float] = {}
    for name in found[0]["errors"]:
        worst = max(found, key=lambda one: excess(one["errors"][name], one["bounds"][name]))
        errors[name], bounds[name] = worst["errors"][name], worst["bounds"][name]
        where |= {name: worst["where"][name]} if name in worst["where"] else {}
        pytorch |= {name: worst["pytorch"][name]} if name in worst["pytorch"] else {}
    return Gate(errors, bounds, (lambda: pytorch) if pytorch else None, where)
