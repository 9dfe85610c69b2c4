"""Tests of the rows of two versions of the code that are timed in turn."""

import pytest

from lmperf.benchmarks import load
from lmperf.comparing.timing import NEW, OLD, _rows_of
from lmperf.measuring.twins import TWIN


class Supervised:
    """A fake supervisor whose rows come from (worker, number of cases timed together) -> row."""

    def __init__(self, row_of):
        self._row_of, self.stopped, self.workers = row_of, 0, self

    def rows(self, benchmark, assignments, seed, twins=()):
        self.twins = twins
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
    return {"status": "ok", "median_ms": 1.0, "rounds_ms": f"rounds of {worker}"}


def test_second_process_runs_the_case_of_the_old_version(attention):
    benchmark, cases = attention
    supervisor = Supervised(timed)
    rows = _rows_of(supervisor, benchmark, cases["mine"], True)
    ((old, twin),) = supervisor.twins.items()
    assert (old.worker, twin.worker) == ("old mine", f"{TWIN} mine") and old.case == twin.case
    assert {*rows} == {OLD, NEW}
    assert rows[NEW]["backward"]["rounds_ms"] == "rounds of new mine"
    _rows_of(supervisor, benchmark, cases["mine"], False)
    assert supervisor.twins == {}


def test_custom_implementation_has_one_worker_per_version(attention):
    benchmark, cases = attention
    rows = _rows_of(Supervised(timed), benchmark, cases["mine"], True)
    assert rows[NEW]["forward"]["rounds_ms"] == "rounds of new mine"


def test_case_too_large_for_two_versions_is_not_compared(attention):
    def too_large(worker, together):
        return timed(worker, together) if together == 1 else {"status": "oom"}

    benchmark, cases = attention
    supervisor = Supervised(too_large)
    rows = _rows_of(supervisor, benchmark, cases["eager"], True)
    for side in (OLD, NEW):
        assert rows[side]["forward"]["status"] == "ok" and "rounds_ms" not in rows[side]["forward"]
    assert supervisor.stopped == 3
