"""Measures groups of cases one after another, and saves the rows of each group at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed, is_ranked
from lmperf.errors import UserError
from lmperf.measuring.first_check import first_checks
from lmperf.measuring.history import TooManyWorkersLost
from lmperf.measuring.progress import Reporter
from lmperf.measuring.stopwatch import Stopwatch
from lmperf.measuring.supervisor import Supervisor, worker_of
from lmperf.measuring.twins import (
    MOST_GROUPS,
    MOST_RANKED_GROUPS,
    Assignment,
    groups_with_twins,
)
from lmperf.measuring.workers import WorkerStartError

Save = Callable[[list[dict[str, Any]], Mapping[str, Any]], None]


def measure(
    benchmark: Benchmark,
    groups: Sequence[list[Case]],
    device: str,
    save: Save,
    reporter: Reporter,
    watch: Stopwatch,
    broken: Mapping[str, str],
    best: Mapping[str, float],
    quick: bool = False,
) -> Counter[str]:
    """Measure groups of a benchmark on a device; return the number of rows by status.

    Args:
        device: cuda, mps or cpu.
        save: called after each group with its rows and the device's properties.
        reporter: shows the progress.
        watch: counts the seconds of each kind of step.
        broken: name of each custom implementation that cannot be called -> the reason. These are
            not run: each of their rows has the status `crash` and the reason.
        best: `launch_us` and `python_us` -> the shortest times of the host's references that are
            known from earlier runs on this machine.
        quick: time no model and no rank group in a second process (`twins`), since it takes long
            to prepare one. A report without such pairs assumes a noise floor.

    Raises:
        UserError: no worker could be started, or too many workers were lost.
    """
    if benchmark.is_check and device != "cuda":
        os.environ["TRITON_INTERPRET"] = "1"  # before the first worker imports Triton
    statuses: Counter[str] = Counter()
    with _supervised(device, reporter, watch, best) as supervisor:
        # A run of a single group needs no first check: the rows of the group come just as early.
        measured = {case.implementation for group in groups for case in group}
        checked = measured - {*broken} if len(groups) > 1 else ()
        for line in first_checks(benchmark, supervisor, checked):
            reporter.note(line)
        ranked = is_ranked(benchmark)
        with_twins = groups_with_twins(len(groups), MOST_RANKED_GROUPS if ranked else MOST_GROUPS)
        if quick and isinstance(benchmark, Timed) and (benchmark.clock == "step" or ranked):
            with_twins = set()
        for number, group in enumerate(groups):
            seed = seed_of(benchmark, group)
            callable_cases = [case for case in group if case.implementation not in broken]
            rows = (
                supervisor.measure(benchmark, callable_cases, seed, number in with_twins)
                if callable_cases
                else []
            )
            rows += _rows_of_broken(benchmark, group, broken, seed)
            watch.enter("saving")
            save(rows, supervisor.workers.facts)
            found = Counter(str(row["status"]) for row in rows)
            statuses.update(found)
            counts = ", ".join(f"{number} {status}" for status, number in sorted(found.items()))
            reporter.finished(f"{benchmark.group_name(group[0].cell)}: {counts}")
    return statuses


def measure_alone(
    cases: Sequence[tuple[Benchmark, Case]],
    device: str,
    save: Save,
    reporter: Reporter,
    watch: Stopwatch,
    best: Mapping[str, float],
) -> None:
    """Measure cases of several benchmarks one by one, all in the same new worker process.

    The other arguments, and the errors raised, are those of `measure`. No case has a baseline or an
    A/A test. `save` is called after each case, in order.
    """
    with _supervised(device, reporter, watch, best) as supervisor:
        for benchmark, case in cases:
            one = Assignment(worker_of(benchmark, case.implementation), case)
            seed = seed_of(benchmark, [case])
            found = supervisor.rows(benchmark, [one], seed, sustained=[one])
            rows = [row for of_phase in found.values() for row in of_phase]
            watch.enter("saving")
            save(rows, supervisor.workers.facts)
            statuses = ", ".join(str(row["status"]) for row in rows)
            reporter.finished(f"{benchmark.stem}: {case.name}: {statuses}")


@contextlib.contextmanager
def _supervised(
    device: str, reporter: Reporter, watch: Stopwatch, best: Mapping[str, float]
) -> Iterator[Supervisor]:
    """Yield a supervisor whose steps are timed and shown; raise UserError if its workers fail."""

    def on_step(words: str, case: Case | None, phase: str | None) -> None:
        watch.enter(words)
        name = f"{case.name}{', ' + phase if phase else ''}: " if case else ""
        reporter.step(name + words)

    with _user_errors(), Supervisor(device, on_step, note=reporter.note, best=best) as supervisor:
        if others := supervisor.other_work():
            reporter.note(f"this machine is not idle: {others}")
        yield supervisor


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
        for phase in benchmark.phases_of(case)
    ]


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    try:
        yield
    except (WorkerStartError, TooManyWorkersLost) as lost:
        raise UserError(str(lost)) from None


def seed_of(benchmark: Benchmark, group: list[Case]) -> int:
    """Return the seed of a group's inputs: another one for each cell, the same in every run."""
    text = f"{benchmark.stem} {group[0].cell}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)
