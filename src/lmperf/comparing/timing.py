"""Times two versions of the code, interleaved, case by case, each in its own worker process.

A third worker, the twin, runs the old version as well. The ratio of its times to those of the old
version gives the noise floor between two processes with the same code. The twin adds half of the
time; a false alarm would cost more.

Workers prepare one case at a time, so that only its inputs are on the device, once per worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmperf.benchmark import Benchmark, Case
from lmperf.comparing.versions import Version
from lmperf.errors import UserError
from lmperf.evidence.wanted import Chosen
from lmperf.measuring.assigned import Row, Rows
from lmperf.measuring.history import TooManyWorkersLost
from lmperf.measuring.progress import Reporter
from lmperf.measuring.run import seed_of
from lmperf.measuring.supervisor import Supervisor, worker_of
from lmperf.measuring.twins import TWIN, Assignment
from lmperf.measuring.workers import WorkerStartError

OLD, NEW = "old", "new"


def time_versions(
    device: str, sides: Mapping[str, Version], chosen: Sequence[Chosen], reporter: Reporter
) -> dict[str, dict[str, list[Row]]]:
    """Time the chosen cases; returns side -> stem of a benchmark -> rows.

    Sides are `OLD`, `NEW` and, optionally, `TWIN`, whose rounds become `again_ms` of the old rows.
    If a case does not fit into memory once per worker, the twin is left out. If it does not fit
    once per version, each version is timed alone, and its rows have no rounds.

    Raises:
        UserError: no worker of a version starts, or too many workers crash or hang.
    """
    external = {name: None for one in chosen for name in one.benchmark.external}
    paths = {
        worker: version.search_path
        for side, version in sides.items()
        for worker in (side, *(f"{side} {name}" for name in external))
    }

    def on_step(words: str, case: Case | None, phase: str | None) -> None:
        reporter.step(f"{case.name}, {phase or 'all'}: {words}" if case else words)

    found: dict[str, dict[str, list[Row]]] = {OLD: {}, NEW: {}}
    try:
        with Supervisor(device, on_step, paths, reporter.note) as supervisor:
            for benchmark, case in _each(chosen):
                rows = _rows_of(supervisor, benchmark, case, TWIN in sides)
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
    supervisor: Supervisor, benchmark: Benchmark, case: Case, twin: bool
) -> dict[str, dict[str, Row]]:
    """Time one case in both versions; returns side -> phase -> row.

    twin: whether the old version also runs in a second process, for the noise of its rows.
    """
    worker = worker_of(benchmark, case.implementation)
    old, new, other = (Assignment(f"{side} {worker}".strip(), case) for side in (OLD, NEW, TWIN))
    seed = seed_of(benchmark, [case])
    taken = supervisor.rows(benchmark, [old, new], seed, {old: other} if twin else {})
    if any(row["status"] == "oom" for rows in taken.values() for row in rows):
        taken = _one_by_one(supervisor, benchmark, [old, new], seed)
    return {
        side: {phase: row for (of, phase), (row,) in taken.items() if of == one}
        for side, one in ((OLD, old), (NEW, new))
    }


def _one_by_one(
    supervisor: Supervisor, benchmark: Benchmark, assigned: Sequence[Assignment], seed: int
) -> Rows:
    """Time versions one after the other; rows lack rounds, since no calls were interleaved."""
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
    """For the progress log: time or status of the old and new version, phase by phase."""
    return "; ".join(
        f"{phase} {_time(row)} -> {_time(rows[NEW].get(phase, {}))}"
        for phase, row in rows[OLD].items()
    )


def _time(row: Row) -> str:
    median = row.get("median_ms")
    return row.get("status", "none") if median is None else f"{median:.4g} ms"
