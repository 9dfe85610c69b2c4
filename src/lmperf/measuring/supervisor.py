"""The supervisor: measures groups of cases in worker processes, and survives the loss of a worker.

A worker that crashes, hangs or runs out of memory becomes a row with that status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring.group import Assignment, Group, Rows, dtype_of, take_noise
from lmperf.measuring.history import RunHistory
from lmperf.measuring.workers import PROJECT, TWIN, OnStep, Workers


class Supervisor:
    """Measures groups on one device. The arguments are those of `Workers`.

    Attributes:
        workers: its worker processes.
        history: what the groups so far have shown.
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
        """One line on what else this machine is doing; None if it is idle."""
        self.workers.start([PROJECT])
        return self.workers.watch.before().words

    def measure(self, benchmark: Benchmark, cases: Sequence[Case], seed: int) -> list[dict]:
        """The rows of a group: one or more for every case and phase, whatever happens to workers.

        Raises:
            WorkerStartError: no worker starts.
            TooManyWorkersLost: the group was given up.
        """
        assignments = [
            Assignment(worker_of(benchmark, case.implementation), case) for case in cases
        ]
        found = self._with_noise(benchmark, assignments, seed)
        return [row for rows in found.values() for row in rows]

    def _with_noise(
        self, benchmark: Benchmark, assignments: Sequence[Assignment], seed: int
    ) -> Rows:
        """The rows of a group; if it has several workers, with the noise between two processes."""
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
        """The rows of each case and phase, with the seed of their inputs; `again` as for Group."""
        group = Group(self.workers, self.history, benchmark, assignments, seed, again)
        found = group.time() if isinstance(benchmark, Timed) else group.observe()
        self.workers.end_custom()
        return {
            (one, phase): [_named(one.case, phase) | row | {"seed": seed} for row in rows]
            for (one, phase), rows in found.items()
        }


def worker_of(benchmark: Benchmark, implementation: str) -> str:
    """The name of an implementation's worker: peers and custom ones have a worker each."""
    return implementation if implementation in benchmark.external else PROJECT


def _named(case: Case, phase: str) -> dict[str, Any]:
    return {**case.axes, "implementation": case.implementation, "phase": phase}


def _twins(assignments: Sequence[Assignment]) -> dict[Assignment, Assignment]:
    """The first case of each dtype -> the same case in a second worker, for the noise.

    Only for groups over several workers: two processes with the same code differ by more than two
    slices in one process.
    """
    if len({one.worker for one in assignments}) < 2:
        return {}
    first: dict[Any, Assignment] = {}
    for one in assignments:
        first.setdefault(dtype_of(one.case), one)
    return {one: Assignment(f"{one.worker} {TWIN}".strip(), one.case) for one in first.values()}
