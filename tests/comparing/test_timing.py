"""What becomes of the rows of two versions."""

import pytest

from lmperf.benchmarks import load
from lmperf.comparing.timing import NEW, OLD, TWIN, _rows_of

SIDES = [OLD, NEW, TWIN]


class Supervised:
    """A supervisor whose rows are made up: host and how many places share the device -> row."""

    def __init__(self, row_of):
        self._row_of, self.stopped = row_of, 0

    def rows(self, benchmark, places, seed, again=True):
        return {
            (place, phase): [self._row_of(place.host, len(places))]
            for phase in benchmark.phases
            for place in places
        }

    def stop(self):
        self.stopped += 1


@pytest.fixture
def attention():
    benchmark = load("attention", {"mine": "my_package:attention"})
    return benchmark, {case.implementation: case for case in benchmark.cases("cpu")}


def timed(host, _):
    return {"status": "ok", "median_ms": 1.0, "rounds_ms": f"rounds of {host}", "again_ms": ""}


def test_the_rounds_of_the_twin_are_those_that_the_old_rows_are_held_against(attention):
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


def test_an_implementation_of_the_user_has_a_worker_of_its_own_for_each_version(attention):
    benchmark, cases = attention
    rows = _rows_of(Supervised(timed), benchmark, cases["mine"], SIDES)
    assert rows[NEW]["forward"]["rounds_ms"] == "rounds of new mine"


def test_what_does_not_fit_beside_the_others_is_taken_alone_and_not_compared(attention):
    def too_large(host, together):
        return timed(host, together) if together == 1 else {"status": "oom"}

    benchmark, cases = attention
    supervisor = Supervised(too_large)
    rows = _rows_of(supervisor, benchmark, cases["eager"], SIDES)
    for side in (OLD, NEW):
        assert rows[side]["forward"]["status"] == "ok" and "rounds_ms" not in rows[side]["forward"]
    assert rows[TWIN] == {} and supervisor.stopped == 3
