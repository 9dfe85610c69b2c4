"""A first look at a user's own implementations: a small cell each, before the long run."""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import prod

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring.group import Place
from lmperf.measuring.supervisor import Supervisor

_SEED = 0
# Compiling takes some seconds, of a model up to a minute; what hangs is not waited for as long as a
# large model may take.
_LIMIT_S = 120.0


def first_checks(
    benchmark: Benchmark, supervisor: Supervisor, broken: Container[str] = ()
) -> Iterator[str]:
    """A line for each of a user's own implementations: what became of it in a small cell.

    `broken` are those of which it is known already that they cannot be called. Nothing is recorded:
    in the cells that are measured each has its rows, whatever is said here. What does not answer
    within the benchmark's own limit counts as a time-out of the run.
    """
    limit_s = benchmark.limit_s
    benchmark.limit_s = min(limit_s, _LIMIT_S)
    try:
        for name in benchmark.external if isinstance(benchmark, Timed) else ():
            if name not in broken and (case := small_case(benchmark, name)):
                found = _tried(benchmark, case, supervisor)
                yield f"{name}, at first in a small cell ({_cell(case)}): {found}"
    finally:
        if benchmark.limit_s < limit_s:  # in the run it may take longer
            supervisor.hung.clear()
        benchmark.limit_s = limit_s


def _cell(case: Case) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in case.cell)


def _tried(benchmark: Benchmark, case: Case, supervisor: Supervisor) -> str:
    place = Place(case.implementation, case)
    rows = supervisor.rows(benchmark, [place], _SEED, again=False)
    wrong = next((row for (row,) in rows.values() if row["status"] != "ok"), None)
    if wrong is None:
        return "is right"
    return f"{wrong['status']}: {wrong.get('reason') or 'more memory than there is'}"


def small_case(benchmark: Benchmark, name: str) -> Case | None:
    """The least of the cells that a processor is given, by the product of its whole numbers."""
    cases = [case for case in benchmark.cases("cpu") if case.implementation == name]
    return min(cases, key=_size, default=None)


def _size(case: Case) -> int:
    return prod(value for value in case.axes.values() if type(value) is int)
