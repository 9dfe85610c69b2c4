"""Checks each custom implementation and peer in a small cell before a long run.

A peer is another project's implementation; a cell is a combination of shape, dtype and other axes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.twins import Assignment

_SEED = 0
# Seconds: enough to compile a model (up to a minute), less than the run allows for a large model.
_LIMIT_S = 120.0


def first_checks(
    benchmark: Benchmark, supervisor: Supervisor, names: Collection[str]
) -> Iterator[str]:
    """Yield a line for each peer and custom implementation in `names`: whether it is correct.

    No row is recorded; the run measures every implementation even if its check fails. A timeout
    here also counts in the run, unless the time limit of the benchmark is longer than that of this
    check.
    """
    limit_s = benchmark.limit_s
    benchmark.limit_s = min(limit_s, _LIMIT_S)
    try:
        for name in benchmark.external if isinstance(benchmark, Timed) else ():
            if name in names and (case := small_case(benchmark, name)):
                cell = ", ".join(f"{axis}={value}" for axis, value in case.cell)
                yield f"{name}, first check ({cell}): {_result(benchmark, case, supervisor)}"
    finally:
        if benchmark.limit_s < limit_s:
            supervisor.history.timeouts.clear()
        benchmark.limit_s = limit_s


def _result(benchmark: Benchmark, case: Case, supervisor: Supervisor) -> str:
    assignment = Assignment(case.implementation, case)
    rows = supervisor.rows(benchmark, [assignment], _SEED)
    wrong = next((row for (row,) in rows.values() if row["status"] != "ok"), None)
    if wrong is None:
        return "correct"
    return f"{wrong['status']}: {wrong.get('reason') or 'out of memory'}"


def small_case(benchmark: Benchmark, name: str) -> Case | None:
    """Return the smallest case of an implementation in the CPU preset; None if it has no case.

    The size of a case is the product of its integer axes.
    """
    cases = [case for case in benchmark.cases("cpu") if case.implementation == name]
    return min(cases, key=_size, default=None)


def _size(case: Case) -> int:
    return prod(value for value in case.axes.values() if type(value) is int)
