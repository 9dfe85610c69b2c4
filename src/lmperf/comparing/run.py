"""Compares two versions of the code: checks them out, times them, returns verdicts.

A case that is faster or slower is timed ``CONFIRMATIONS`` times more in new processes, and is
unresolved unless it differs in the same direction each time: two processes of the same code can
differ by more than their twin shows, most of all if few cells are compared. Differences are rare,
so this is cheap.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lmperf.benchmark import Case
from lmperf.comparing.timing import NEW, OLD, TWIN, time_versions
from lmperf.comparing.versions import Codes, Version, version, working_tree
from lmperf.errors import UserError
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.project import Project
from lmperf.evidence.store import write_atomically
from lmperf.evidence.wanted import (
    Chosen,
    Wanted,
    beyond_the_grid,
    require_known_axes,
    select,
    timed_benchmarks,
)
from lmperf.measuring.group import Row
from lmperf.measuring.progress import Reporter
from lmperf.reporting.diff.comparison import Comparison, compare, floors_of, without
from lmperf.reporting.diff.results import Result, read_result
from lmperf.statistics import FASTER, SLOWER, paired

# How often a difference is measured again in new processes before it is reported.
CONFIRMATIONS = 2


def compare_versions(
    project: Project, names: Sequence[str], wanted: Wanted, at_least: float, twin: bool = True
) -> Comparison | None:
    """Time two versions of the code, interleaved. Nothing is stored as evidence.

    Returns None if no benchmark is named and no benchmark's code differs.

    Args:
        names: names of the old and the new version. The new version defaults to the working tree,
            the old one to HEAD.
        at_least: the smallest difference of times that counts as a change, as a fraction.
        twin: whether the old version is also timed against itself in a second process.

    Raises:
        UserError: a version, benchmark or cell does not exist or cannot be compared.
    """
    if not project.can_measure:
        raise UserError("nothing can be timed here, since torch is not installed")
    found = timed_benchmarks(project, wanted.benchmarks)
    require_known_axes(found, wanted.only)
    if len(wanted.benchmarks) == 1:
        found = [beyond_the_grid(project, found[0], wanted)]
    with _exit_on_signals(), contextlib.ExitStack() as stack:
        old = stack.enter_context(version(names[0] if names else "HEAD"))
        new = stack.enter_context(version(names[1])) if len(names) > 1 else working_tree()
        was, now = old.codes(found), new.codes(found)
        if not wanted.benchmarks:
            found = [one for one in found if was[one.benchmark.stem] != now[one.benchmark.stem]]
            if not found:
                return None
        chosen = select(found, wanted)
        sides = {OLD: old, NEW: new, **({TWIN: old} if twin else {})}

        def measure(chosen: Sequence[Chosen]) -> list[Result]:
            total = sum(len(one.cases) for one in chosen)
            with Reporter("compare", total, None, unit="case") as reporter:
                rows = time_versions(project.machine.kind, sides, chosen, reporter)
            both = (OLD, old, was), (NEW, new, now)
            return [_result(project, of, chosen, rows[side], code) for side, of, code in both]

        return confirmed(measure, chosen, at_least)


def confirmed(
    measure: Callable[[Sequence[Chosen]], Sequence[Result]],
    chosen: Sequence[Chosen],
    at_least: float,
) -> Comparison:
    """Compare two versions, and measure the cases that differ again: see the module.

    measure: times cases in new processes, and returns the results of the old and the new version.
    """
    results = measure(chosen)
    # Differences are confirmed, so that the floor need not be a safe one where it is little known.
    floors = floors_of(*results, unknown=0.0)
    found = compare(*results, at_least, estimate=paired, floors=floors)
    for _ in range(CONFIRMATIONS):
        again = _differing(found, chosen)
        if not again:
            break
        second = compare(*measure(again), at_least, estimate=paired, floors=floors)
        found = without(found, second)
    return found


def _differing(found: Comparison, chosen: Sequence[Chosen]) -> list[Chosen]:
    """The chosen cases that have a row that is faster or slower."""
    rows = found.rows[found.rows["verdict"].isin((FASTER, SLOWER))]
    named = {
        (stem, tuple(sorted(axes.items())), implementation)
        for stem, axes, implementation in rows[["benchmark", "axes", "implementation"]].to_numpy()
    }

    def differs(one: Chosen, case: Case) -> bool:
        axes = tuple(sorted((name, str(value)) for name, value in case.cell))
        return (one.benchmark.stem, axes, case.implementation) in named

    kept = [replace(one, cases=[c for c in one.cases if differs(one, c)]) for one in chosen]
    return [one for one in kept if one.cases]


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """A context in which SIGTERM and SIGHUP raise SystemExit, so that checkouts are removed."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, _: sys.exit(128 + number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _result(
    project: Project,
    of: Version,
    chosen: Sequence[Chosen],
    rows: Mapping[str, Sequence[Row]],
    codes: Codes,
) -> Result:
    """The rows of a version as a `Result`, as if read from the evidence of a machine.

    rows: stem of a benchmark -> rows. codes: digests of the implementations' code, which become
    the keys of the rows.
    """
    environment = project.machine.environment
    facts = {"machine": project.machine.slug, "environments": {environment: project.machine.facts}}
    with tempfile.TemporaryDirectory() as folder:
        write_atomically(Path(folder) / "machine.json", json.dumps(facts).encode())
        for one in chosen:
            evidence_of(one.benchmark, Path(folder)).replace(
                {
                    **row,
                    "environment": environment,
                    "commit": of.commit,
                    "key": codes[one.benchmark.stem][row["implementation"]],
                }
                for row in rows.get(one.benchmark.stem, [])
            )
        return replace(read_result(folder), name=of.name)
