"""Measures groups of cases in worker processes, and continues when a worker is lost.

If a worker crashes, hangs or runs out of memory, the case that it was running gets a row with the
status `crash`, `timeout` or `oom`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring.group import Assignment, Group, Rows, dtype_of, take_noise
from lmperf.measuring.history import RunHistory
from lmperf.measuring.workers import PROJECT, TWIN, OnStep, Workers


class Supervisor:
    """Measures groups of cases on one device. The arguments are those of `Workers`.

    Attributes:
        workers: the worker processes of the device.
        history: timeouts, repeats and drift in the groups measured so far.
    """

    def __init__(
        self,
        device: str,
        on_step: OnStep = lambda *_: None,
        paths: Mapping[str, Sequence[str]] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ):
        self.workers = Workers(device, on_step, note, paths)
        self.history = RunHistory()

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.stop()

    def other_work(self) -> str | None:
        """Return one line about other programs that use this machine; None if it is idle."""
        self.workers.start([PROJECT])
        return self.workers.watch.before().words

    def measure(self, benchmark: Benchmark, cases: Sequence[Case], seed: int) -> list[dict]:
        """Measure a group; return its rows: every case and phase has one, even if workers are lost.

        Raises:
            WorkerStartError: a worker could not be started.
            TooManyWorkersLost: the group was given up after too many lost workers.
        """
        assignments = [
            Assignment(worker_of(benchmark, case.implementation), case) for case in cases
        ]
        found = self._with_noise(benchmark, assignments, seed)
        return [row for rows in found.values() for row in rows]

    def _with_noise(
        self, benchmark: Benchmark, assignments: Sequence[Assignment], seed: int
    ) -> Rows:
        """Return the rows of a group; with several workers, add an A/A test between two processes.

        A timed group with several workers runs a few cases in a second process as well. If any row
        is out of memory, the group is measured again without the second process.
        """
        twins = _twins(assignments) if isinstance(benchmark, Timed) else {}
        if twins:
            found = self.rows(benchmark, [*assignments, *twins.values()], seed, again=False)
            if not any(row["status"] == "oom" for rows in found.values() for row in rows):
                for one, twin in twins.items():
                    for phase in benchmark.phases:
                        (row,), (other,) = found[one, phase], found.pop((twin, phase))
                        take_noise(row, other)
                return found
            for twin in twins.values():  # the twins may have caused the lack of memory
                self.workers.end(twin.worker)
        return self.rows(benchmark, assignments, seed)

    def rows(
        self,
        benchmark: Benchmark,
        assignments: Sequence[Assignment],
        seed: int,
        again: bool = True,
    ) -> Rows:
        """Measure cases; return (assignment, phase) -> rows. `again` as for `Group`."""
        group = Group(self.workers, self.history, benchmark, assignments, seed, again)
        found = group.time() if isinstance(benchmark, Timed) else group.observe()
        self.workers.end_custom()
        return {
            (one, phase): [_named(one.case, phase) | row | {"seed": seed} for row in rows]
            for (one, phase), rows in found.items()
        }


def worker_of(benchmark: Benchmark, implementation: str) -> str:
    """Return the name of the worker that runs an implementation.

    Peers and custom implementations have a worker each; the project's implementations share one.
    """
    return implementation if implementation in benchmark.external else PROJECT


def _named(case: Case, phase: str) -> dict[str, Any]:
    return {**case.axes, "implementation": case.implementation, "phase": phase}


def _twins(assignments: Sequence[Assignment]) -> dict[Assignment, Assignment]:
    """Return the first case of each dtype -> the same case in a second worker, for an A/A test.

    Empty if one worker runs the whole group. Over several workers the second process is needed:
    times of two processes with the same code differ by more than two slices of one process.
    """
    if len({one.worker for one in assignments}) < 2:
        return {}
    first: dict[Any, Assignment] = {}
    for one in assignments:
        first.setdefault(dtype_of(one.case), one)
    return {one: Assignment(f"{one.worker} {TWIN}".strip(), one.case) for one in first.values()}
