"""Measures groups of cases in worker processes, and continues when a worker is lost.

If a worker crashes, hangs or runs out of memory, the case that it was running gets a row with the
status `crash`, `timeout` or `oom`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed, ranks_of
from lmperf.measuring.assigned import Entry, Rows
from lmperf.measuring.faults import lacks_memory
from lmperf.measuring.group import Group
from lmperf.measuring.history import RunHistory
from lmperf.measuring.readings import References
from lmperf.measuring.twins import Assignment, twins_of
from lmperf.measuring.workers import PROJECT, OnStep, Workers


class Supervisor:
    """Measures groups of cases on one device. The arguments not named here are those of `Workers`.

    Args:
        best: `launch_us` and `python_us` -> the shortest times of the host's references that are
            known from earlier runs on this machine.

    Attributes:
        workers: the worker processes of the device.
        history: timeouts, disturbed phases and references in the groups measured so far.
    """

    def __init__(
        self,
        device: str,
        on_step: OnStep = lambda *_: None,
        paths: Mapping[str, Sequence[str]] | None = None,
        note: Callable[[str], None] = lambda _: None,
        best: Mapping[str, float] = MappingProxyType({}),
    ):
        self.workers = Workers(device, on_step, note, paths)
        self.history = RunHistory(References(device, best))

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.stop()

    def other_work(self) -> str | None:
        """Return one line about other programs that use this machine; None if it is idle."""
        self.workers.start([PROJECT])
        return self.workers.watch.before().words

    def measure(
        self, benchmark: Benchmark, cases: Sequence[Case], seed: int, twins: bool = True
    ) -> list[dict]:
        """Measure a group; return its rows: every case and phase has one, even if workers are lost.

        A case that runs out of memory beside the other cases of its group is measured again alone.

        twins: whether the first case of each dtype also runs in a second process (an A/A test).

        Raises:
            WorkerStartError: a worker could not be started.
            TooManyWorkersLost: the group was given up after too many lost workers.
        """
        assignments = [
            Assignment(worker_of(benchmark, case.implementation), case) for case in cases
        ]
        chosen = twins_of(assignments) if twins else {}
        found = self.rows(benchmark, assignments, seed, chosen, assignments)
        if isinstance(benchmark, Timed) and len(assignments) > 1:
            full = [entry for entry, rows in found.items() if any(map(lacks_memory, rows))]
            found |= self._alone(benchmark, seed, full)
        return [row for rows in found.values() for row in rows]

    def _alone(self, benchmark: Timed, seed: int, full: Sequence[Entry]) -> Rows:
        """Measure the cases of some entries alone in new workers; return the rows of these entries.

        Cases timed in turn are all in memory at once, so that one may lack what another holds.
        """
        found: Rows = {}
        for one in dict.fromkeys(one for one, _ in full):
            for name in self.workers.names:
                self.workers.end(name)
            found |= self.rows(benchmark, [one], seed, sustained=[one])
        return {entry: found[entry] for entry in full}

    def rows(
        self,
        benchmark: Benchmark,
        assignments: Sequence[Assignment],
        seed: int,
        twins: Mapping[Assignment, Assignment] = MappingProxyType({}),
        sustained: Collection[Assignment] = (),
    ) -> Rows:
        """Measure cases; return (assignment, phase) -> rows. Arguments as for `Group`."""
        self.workers.use_devices(max(ranks_of(benchmark, one.case) for one in assignments))
        group = Group(self.workers, self.history, benchmark, assignments, seed, twins, sustained)
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
