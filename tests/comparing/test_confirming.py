"""A difference between two versions is reported only if new processes show it again."""

import pytest
from made_up import timed

from lmperf.benchmarks import load
from lmperf.comparing.run import CONFIRMATIONS, confirmed
from lmperf.evidence.plan import Plan
from lmperf.reporting.revisions import read_result

pytestmark = pytest.mark.slow

CELLS = 8


@pytest.fixture
def chosen():
    benchmark = load("attention")
    cases = [case for case in benchmark.cases("cpu") if case.implementation == "eager"]
    return [Plan(benchmark, tuple(cases[:CELLS]), None, None)]


class Measurements:
    """A fake measurement: the time of the new version, by the number of the measurement."""

    def __init__(self, directory, *factors, **columns):
        self.directory, self.factors, self.columns, self.asked = directory, factors, columns, []

    def __call__(self, chosen):
        factor = self.factors[len(self.asked)]
        self.asked.append([case for one in chosen for case in one.cases])
        return [self._result(side, chosen, f) for side, f in (("old", 1.0), ("new", factor))]

    def _result(self, side, chosen, factor):
        directory = self.directory / f"{side}{len(self.asked)}"
        # Only the first cell of the new version differs.
        factors = [factor] + [1.0] * CELLS
        timed(directory, chosen[0].cases, factors.__getitem__, directory.name, **self.columns)
        return read_result(str(directory))


def test_difference_seen_once_is_unresolved(chosen, tmp_path):
    measure = Measurements(tmp_path, 1.2, 1.0)
    found = confirmed(measure, chosen, 0.02)
    assert found.regressions == 0 and found.counts["unresolved"] == 1
    assert measure.asked == [[*chosen[0].cases], [chosen[0].cases[0]]], "only that case again"


def test_difference_must_keep_its_direction(chosen, tmp_path):
    assert confirmed(Measurements(tmp_path, 1.2, 0.8), chosen, 0.02).regressions == 0


def test_difference_seen_each_time_is_reported(chosen, tmp_path):
    measure = Measurements(tmp_path, *[1.2] * (1 + CONFIRMATIONS))
    found = confirmed(measure, chosen, 0.02)
    assert found.regressions == 1 and len(measure.asked) == 1 + CONFIRMATIONS


def test_equal_versions_are_measured_once(chosen, tmp_path):
    measure = Measurements(tmp_path, 1.0)
    found = confirmed(measure, chosen, 0.02)
    assert len(measure.asked) == 1 and found.counts["same"] == CELLS


def test_loaded_machine_has_no_difference_to_confirm(chosen, tmp_path):
    measure = Measurements(tmp_path, 1.2, marks="loaded")
    found = confirmed(measure, chosen, 0.02)
    assert found.regressions == 0 and len(measure.asked) == 1
    assert found.counts["unresolved"] == CELLS
