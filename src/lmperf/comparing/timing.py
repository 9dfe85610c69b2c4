"""Timing two versions in turn: case by case, each version in a worker of its own.

A third worker has the old version once more, its twin: what it reads against the old one is the
noise floor of two processes of the same code, which two slices of one process do not have. It costs
half as much again, and a false alarm costs more.

One case at a time is prepared, so that only its inputs are on the device, once for each worker, and
its rounds are short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmperf.benchmark import Benchmark, Case
from lmperf.comparing.versions import Version
from lmperf.errors import UserError
from lmperf.evidence.wanted import Chosen
from lmperf.measuring.group import Place, Row, take_noise
from lmperf.measuring.losses import LostTooOften
from lmperf.measuring.progress import Reporter
from lmperf.measuring.run import seed_of
from lmperf.measuring.supervisor import Supervisor, WorkerLost

OLD, NEW, TWIN = "old", "new", "twin"
# By side, stem: the rows of a version.
Rows = dict[str, dict[str, list[Row]]]


def time_in_turn(
    device: str, sides: Mapping[str, Version], chosen: Sequence[Chosen], reporter: Reporter
) -> Rows:
    """The rows of each side, of `OLD`, `NEW` and, where it is given, `TWIN`.

    Where a twin was timed its rounds are `again_ms` of the old rows. A case that does not fit into
    memory several times at once is taken alone by each version: its rows have a state, no rounds.

    Raises:
        UserError: no worker of a version starts, or too many are lost.
    """
    own = {name: None for one in chosen for name in one.benchmark.external}
    paths = {
        host: version.search_path
        for side, version in sides.items()
        for host in (side, *(f"{side} {name}" for name in own))
    }

    def step(words: str, case: Case | None, phase: str | None) -> None:
        reporter.step(f"{case.name}, {phase or 'all'}: {words}" if case else words)

    found: Rows = {side: {} for side in sides}
    try:
        with Supervisor(device, step, paths, reporter.note) as supervisor:
            for benchmark, case in _each(chosen):
                rows = _rows_of(supervisor, benchmark, case, list(sides))
                for side, those in rows.items():
                    found[side].setdefault(benchmark.stem, []).extend(those.values())
                reporter.finished(f"{benchmark.stem}, {case.name}: {_in_words(rows)}")
    except (WorkerLost, LostTooOften) as lost:
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
    own = case.implementation in benchmark.external
    places = {side: Place(f"{side} {case.implementation}" if own else side, case) for side in sides}
    seed = seed_of(benchmark, [case])
    taken = supervisor.rows(benchmark, list(places.values()), seed, again=TWIN not in sides)
    if any(row["status"] == "oom" for rows in taken.values() for row in rows):
        taken = _one_by_one(supervisor, benchmark, [places[OLD], places[NEW]], seed)
    rows = {
        side: {
            phase: {**case.axes, "implementation": case.implementation, "phase": phase, **row}
            for (at, phase), (row,) in taken.items()
            if at == place
        }
        for side, place in places.items()
    }
    for phase, twin in rows.get(TWIN, {}).items():
        take_noise(rows[OLD].get(phase, {}), twin)
    return rows


def _one_by_one(supervisor: Supervisor, benchmark: Benchmark, places: Sequence[Place], seed: int):
    """The rows of places that have the device to themselves; what was not timed in turn has no
    rounds that could be compared."""
    taken = {}
    for place in places:
        supervisor.stop()
        taken |= supervisor.rows(benchmark, [place], seed)
    supervisor.stop()
    apart = ("rounds_ms", "rounds_mhz", "again_ms")
    return {
        key: [{name: value for name, value in row.items() if name not in apart} for row in rows]
        for key, rows in taken.items()
    }


def _in_words(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """Of each phase the times of both versions, or what stands in their way."""
    return "; ".join(
        f"{phase} {_time(row)} -> {_time(rows[NEW].get(phase, {}))}"
        for phase, row in rows[OLD].items()
    )


def _time(row: Row) -> str:
    median = row.get("median_ms")
    return row.get("status", "none") if median is None else f"{median:.4g} ms"
