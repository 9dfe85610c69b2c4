"""Compares two versions of the code: checks them out, times them, returns verdicts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lmperf.comparing.timing import NEW, OLD, TWIN, time_versions
from lmperf.comparing.versions import Codes, Version, version, working_tree
from lmperf.errors import UserError
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.project import Project
from lmperf.evidence.store import write_atomically
from lmperf.evidence.wanted import Chosen, Wanted, select, timed_benchmarks
from lmperf.measuring.group import Row
from lmperf.measuring.progress import Reporter
from lmperf.reporting.diff.comparison import Comparison, compare
from lmperf.reporting.diff.results import Result, read_result
from lmperf.reporting.numbers import counted, percent
from lmperf.reporting.speedup import noise_floors
from lmperf.statistics import FLOOR_QUANTILE, paired


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
        with Reporter("compare", sum(len(one.cases) for one in chosen), None) as reporter:
            rows = time_versions(project.machine.kind, sides, chosen, reporter)
    results = [
        _result(project, of, chosen, rows[side], code)
        for side, of, code in ((OLD, old, was), (NEW, new, now))
    ]
    compared = compare(*results, at_least, estimate=paired)
    return dataclasses.replace(compared, notes=[*compared.notes, *_floor_note(results[0], twin)])


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
        return dataclasses.replace(read_result(folder), name=of.name)


def _floor_note(old: Result, twin: bool) -> list[str]:
    """A note on the noise floor (how far A/A intervals exclude 1); empty without A/A pairs."""
    floors = [noise_floors(frame) for frame in old.frames.values()]
    pairs = int(sum(found["pairs"].sum() for found in floors))
    if not pairs:
        return []
    highest = max(found["apart"].max() for found in floors)
    what = "two processes of the old version" if twin else "two slices of one process"
    return [
        f"noise floor, by phase and dtype: {what} differ by up to {percent(highest)} in"
        f" {percent(FLOOR_QUANTILE, 0)} of rows ({counted(pairs, 'row')});"
        " with few rows this is a rough estimate"
    ]
