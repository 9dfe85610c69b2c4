"""A comparison of two versions, from their names to verdicts; nothing is kept of it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lmperf.comparing.timing import NEW, OLD, TWIN, time_in_turn
from lmperf.comparing.versions import Codes, Version, version, working_tree
from lmperf.errors import UserError
from lmperf.evidence.plan import Project, evidence_of
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
    """Two versions timed in turn, row by row; None where the code of no benchmark differs.

    Args:
        names: of the old and the new version; the new is the working tree where one is named, and
            the old is HEAD where none is.
        at_least: the least difference that counts, as a fraction.
        twin: whether the old version is timed against itself, in another process.

    Raises:
        UserError: a version, a benchmark or a cell is not there, or cannot be compared.
    """
    if not project.can_measure:
        raise UserError("nothing can be timed here, since torch is not installed")
    found = timed_benchmarks(project, wanted.benchmarks)
    with _ended_in_order(), contextlib.ExitStack() as stack:
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
            rows = time_in_turn(project.machine.kind, sides, chosen, reporter)
    results = [
        _result(project, of, chosen, rows[side], code)
        for side, of, code in ((OLD, old, was), (NEW, new, now))
    ]
    compared = compare(*results, at_least, estimate=paired)
    return dataclasses.replace(compared, notes=[*compared.notes, *_floor_note(results[0], twin)])


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Where this process is told to end, what was checked out is removed first."""
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
    """The rows of a version, as if read from the evidence of a machine.

    rows: by stem. codes: a row's key is the digest of its implementation's code.
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
    """Of how many rows the noise floor is, and how high."""
    floors = [noise_floors(frame) for frame in old.frames.values()]
    pairs = int(sum(found["pairs"].sum() for found in floors))
    if not pairs:
        return []
    highest = max(found["apart"].max() for found in floors)
    what = "two processes of the old version" if twin else "two slices of one process"
    return [
        f"noise floor, by phase and numerics: {what} differ by up to {percent(highest)} in"
        f" {percent(FLOOR_QUANTILE, 0)} of rows ({counted(pairs, 'row')});"
        " of few rows it is weak"
    ]
