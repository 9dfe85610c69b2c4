"""Times two versions in turn, case by case, each version in a worker of its own.

A third worker, the twin, runs the old version as well. Its ratio to the old version gives the noise
floor between two processes with the same code, which two slices of one process would understate.
The twin costs half as much time again; a false alarm would cost more.

One case at a time is prepared, so that only its inputs are on the device, once for each worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmperf.benchmark import Benchmark, Case
from lmperf.comparing.versions import Version
from lmperf.errors import UserError
from lmperf.evidence.wanted import Chosen
from lmperf.measuring.group import Assignment, Row, Rows, take_noise
from lmperf.measuring.history import TooManyWorkersLost
from lmperf.measuring.progress import Reporter
from lmperf.measuring.run import seed_of
from lmperf.measuring.supervisor import Supervisor, worker_of
from lmperf.measuring.workers import WorkerStartError

OLD, NEW, TWIN = "old", "new", "twin"


def time_versions(
    device: str, sides: Mapping[str, Version], chosen: Sequence[Chosen], reporter: Reporter
) -> dict[str, dict[str, list[Row]]]:
    """The rows of each side by stem. Sides are `OLD`, `NEW` and, optionally, `TWIN`.

    With a twin, its rounds are `again_ms` of the old rows. If a case does not fit into memory
    several times at once, each version is timed alone, and its rows have no rounds.

    Raises:
        UserError: no worker of a version starts, or too many are lost.
    """
    external = {name: None for one in chosen for name in one.benchmark.external}
    paths = {
        worker: version.search_path
        for side, version in sides.items()
        for worker in (side, *(f"{side} {name}" for name in external))
    }

    def on_step(words: str, case: Case | None, phase: str | None) -> None:
        reporter.step(f"{case.name}, {phase or 'all'}: {words}" if case else words)

    found: dict[str, dict[str, list[Row]]] = {side: {} for side in sides}
    try:
        with Supervisor(device, on_step, paths, reporter.note) as supervisor:
            for benchmark, case in _each(chosen):
                rows = _rows_of(supervisor, benchmark, case, list(sides))
                for side, by_phase in rows.items():
                    found[side].setdefault(benchmark.stem, []).extend(by_phase.values())
                reporter.finished(f"{benchmark.stem}, {case.name}: {_in_words(rows)}")
    except (WorkerStartError, TooManyWorkersLost) as lost:
        raise UserError(str(lost)) from None
    return found


def _each(chosen: Sequence[Chosen]) -> Iterator[tuple[Benchmark, Case]]:
    for one in chosen:
        one.benchmark.patient = True
        for case in one.cases:
            yield one.benchmark, case


def _rows_of(
    supervisor: Supervisor, benchmark: Benchmark, case: Case, sides: Sequence[str]
) -> dict[str, dict[str, Row]]:
    """The rows of a case by side and phase."""
    worker = worker_of(benchmark, case.implementation)
    assigned = {side: Assignment(f"{side} {worker}".strip(), case) for side in sides}
    seed = seed_of(benchmark, [case])
    taken = supervisor.rows(benchmark, list(assigned.values()), seed, again=TWIN not in sides)
    if any(row["status"] == "oom" for rows in taken.values() for row in rows):
        taken = _one_by_one(supervisor, benchmark, [assigned[OLD], assigned[NEW]], seed)
    rows = {
        side: {phase: row for (other, phase), (row,) in taken.items() if other == one}
        for side, one in assigned.items()
    }
    for phase, twin in rows.get(TWIN, {}).items():
        take_noise(rows[OLD].get(phase, {}), twin)
    return rows


def _one_by_one(
    supervisor: Supervisor, benchmark: Benchmark, assigned: Sequence[Assignment], seed: int
) -> Rows:
    """Rows of versions that were timed one after the other, without rounds: nothing pairs them."""
    taken = {}
    for one in assigned:
        supervisor.workers.stop()
        taken |= supervisor.rows(benchmark, [one], seed)
    supervisor.workers.stop()
    of_rounds = ("rounds_ms", "rounds_mhz", "again_ms")
    return {
        entry: [{name: row[name] for name in row if name not in of_rounds} for row in rows]
        for entry, rows in taken.items()
    }


def _in_words(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """The times of both versions by phase, or the status of a failed one."""
    return "; ".join(
        f"{phase} {_time(row)} -> {_time(rows[NEW].get(phase, {}))}"
        for phase, row in rows[OLD].items()
    )


def _time(row: Row) -> str:
    median = row.get("median_ms")
    return row.get("status", "none") if median is None else f"{median:.4g} ms"
