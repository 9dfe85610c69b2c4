"""Measuring groups of cases, one after another; what a group gives is handed on when it is done."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lmperf.benchmark import Benchmark, Case
from lmperf.errors import UserError
from lmperf.measuring.first_check import first_checks
from lmperf.measuring.losses import LostTooOften
from lmperf.measuring.progress import Reporter
from lmperf.measuring.stopwatch import Stopwatch
from lmperf.measuring.supervisor import Supervisor, WorkerLost

Save = Callable[[list[dict[str, Any]], Mapping[str, Any]], None]


def measure(
    benchmark: Benchmark,
    groups: Sequence[list[Case]],
    device: str,
    save: Save,
    reporter: Reporter,
    watch: Stopwatch,
    broken: Mapping[str, str],
) -> Counter[str]:
    """Measure groups of a benchmark on a device (cuda, mps or cpu); the number of rows by status.

    `save` takes the rows of a group and what the worker knows of the device, before the next group.
    `broken` says of a user's own implementations what is wrong with those that cannot be called:
    each of their rows says it, and none is tried.

    Raises:
        UserError: no worker starts, or too many are lost.
    """
    if benchmark.is_check and device != "cuda":
        os.environ["TRITON_INTERPRET"] = "1"  # before the first worker imports Triton
    statuses: Counter[str] = Counter()

    def step(words: str, case: Case | None, phase: str | None) -> None:
        watch.enter(words)
        name = f"{case.name}{', ' + phase if phase else ''}: " if case else ""
        reporter.step(name + words)

    with _said(), Supervisor(device, step, note=reporter.note) as supervisor:
        if others := supervisor.others():
            reporter.note(f"this machine is not at rest: {others}")
        # Of one group alone it would say no sooner what its rows say.
        for line in first_checks(benchmark, supervisor, broken) if len(groups) > 1 else ():
            reporter.note(line)
        for group in groups:
            seed = seed_of(benchmark, group)
            whole = [case for case in group if case.implementation not in broken]
            rows = supervisor.measure(benchmark, whole, seed) if whole else []
            rows += _rows_of_broken(benchmark, group, broken, seed)
            watch.enter("saving")
            save(rows, supervisor.facts)
            found = Counter(str(row["status"]) for row in rows)
            statuses.update(found)
            counts = ", ".join(f"{number} {status}" for status, number in sorted(found.items()))
            reporter.finished(f"{_group_name(benchmark, group)}: {counts}")
    return statuses


def _rows_of_broken(
    benchmark: Benchmark, group: Sequence[Case], broken: Mapping[str, str], seed: int
) -> list[dict[str, Any]]:
    return [
        {
            **case.axes,
            **{"implementation": case.implementation, "phase": phase, "status": "crash"},
            **{"reason": broken[case.implementation], "seed": seed},
        }
        for case in group
        if case.implementation in broken
        for phase in benchmark.phases
    ]


@contextlib.contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except (WorkerLost, LostTooOften) as lost:
        raise UserError(str(lost)) from None


def seed_of(benchmark: Benchmark, group: list[Case]) -> int:
    """The seed of a group's inputs: another for each cell, the same in every run."""
    text = f"{benchmark.stem} {group[0].cell}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)


def _group_name(benchmark: Benchmark, group: list[Case]) -> str:
    shared = [pair for pair in group[0].cell if pair[0] not in benchmark.together]
    return ", ".join(f"{axis}={value}" for axis, value in shared) or benchmark.stem
