"""Tests of the rows of two versions of the code that are timed in turn."""

import pytest

from lmperf.benchmarks import load
from lmperf.comparing.timing import NEW, OLD, TWIN, _rows_of

SIDES = [OLD, NEW, TWIN]


class Supervised:
    """A fake supervisor whose rows come from (worker, number of cases timed together) -> row."""

    def __init__(self, row_of):
        self._row_of, self.stopped, self.workers = row_of, 0, self

    def rows(self, benchmark, assignments, seed, again=True):
        return {
            (one, phase): [
                {"implementation": one.case.implementation}
                | self._row_of(one.worker, len(assignments))
            ]
            for phase in benchmark.phases
            for one in assignments
        }

    def stop(self):
        self.stopped += 1


@pytest.fixture
def attention():
    benchmark = load("attention", {"mine": "my_package:attention"})
    return benchmark, {case.implementation: case for case in benchmark.cases("cpu")}


def timed(worker, _):
    return {"status": "ok", "median_ms": 1.0, "rounds_ms": f"rounds of {worker}", "again_ms": ""}


def test_old_rows_take_their_noise_from_the_twin_process(attention):
    benchmark, cases = attention
    rows = _rows_of(Supervised(timed), benchmark, cases["eager"], SIDES)
    assert rows[OLD]["forward"]["again_ms"] == "rounds of twin"
    assert rows[OLD]["forward"]["implementation"] == "eager"
    assert rows[NEW]["backward"]["rounds_ms"] == "rounds of new"
    assert rows[NEW]["backward"]["again_ms"] == ""
    assert (
        "again_ms"
        in _rows_of(Supervised(timed), benchmark, cases["eager"], SIDES[:2])[OLD]["forward"]
    )


def test_custom_implementation_has_one_worker_per_version(attention):
    benchmark, cases = attention
    rows = _rows_of(Supervised(timed), benchmark, cases["mine"], SIDES)
    assert rows[NEW]["forward"]["rounds_ms"] == "rounds of new mine"


def test_case_too_large_for_two_versions_is_not_compared(attention):
    def too_large(worker, together):
        return timed(worker, together) if together == 1 else {"status": "oom"}

    benchmark, cases = attention
    supervisor = Supervised(too_large)
    rows = _rows_of(supervisor, benchmark, cases["eager"], SIDES)
    for side in (OLD, NEW):
        assert rows[side]["forward"]["status"] == "ok" and "rounds_ms" not in rows[side]["forward"]
    assert rows[TWIN] == {} and supervisor.stopped == 3
