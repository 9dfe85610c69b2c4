"""Tests of a phase that is timed again on a disturbed machine, and of the marks of its rows.

The times of the entries and the readings of the references are scripted; no worker runs.
"""

from dataclasses import replace

import pytest
from toy import Toy

from lmperf.measuring import group
from lmperf.measuring.group import Group
from lmperf.measuring.history import _MOST_DISTURBED, RunHistory
from lmperf.measuring.readings import Reading, References
from lmperf.measuring.rounds import MOST_TAKES, Timings
from lmperf.measuring.state import State
from lmperf.measuring.supervisor import worker_of
from lmperf.measuring.sustained import Stretch
from lmperf.measuring.twins import Assignment

QUIET = Reading(10.0, 20.0, 5.0, 1000.0)
COLD, SLOW = replace(QUIET, matmul_ms=14.0), replace(QUIET, python_us=2400.0)
LOADED = State(other_load=0.9, seconds=1.0)


class Watch:
    """A fake of `state.Watch`: every slice is undisturbed."""

    def begin(self):
        pass

    def wait(self):
        pass


class Workers:
    """A fake of `workers.Workers` whose readings are taken from a list, the last one for ever."""

    names, watch = (), Watch()

    def __init__(self, device, readings):
        self.device, self._readings, self.pid = device, list(readings), 1

    def start(self, names):
        pass

    def on_step(self, *step):
        pass

    def pid_of(self, name):
        return self.pid

    def ask(self, name, *request, **more):
        return {}

    def reading(self, request):
        found = self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]
        self.pid += found is None  # a reading fails if it makes its worker crash
        return found


def history_of(device):
    """The history of a run that has seen a quiet machine for a while."""
    history = RunHistory(References(device, {}))
    for _ in range(20):
        history.references.read(lambda: QUIET)
    return history


@pytest.fixture
def timed(monkeypatch):
    """Time a phase on a machine with given readings; returns its row and how often it was timed.

    timings: what the rounds of each take give, the last one for ever. benchmark: a `Toy`.
    """

    def run(*readings, timings=(), device="cpu", benchmark=None, history=None, stretch=None):
        benchmark = benchmark or Toy("toy")
        (case, _) = benchmark.cases("cpu")
        one = Assignment(worker_of(benchmark, case.implementation), case)
        if history is None:
            history = history_of(device)
        made = Group(Workers(device, readings or [QUIET]), history, benchmark, [one], 1, {}, [one])
        made._cases.complete = lambda worker, request: made._cases._prepared_by.update(
            {worker: made._workers.pid}
        )
        made._cases.ready[one, "forward"] = {}
        made._cases._prepared_by[""] = 1
        made._stretch = lambda entry, step_ms: stretch or Stretch([1.0], State())
        left, takes = list(timings) or [{}], []

        def in_turn(entries, *_, **more):
            takes.append(entries)
            changes = left.pop(0) if len(left) > 1 else left[0]
            found = {"times": [1.0], "rounds": [1.0], "states": [State()], "marks": {}}
            return {entry: Timings(**{**found, **changes}) for entry in entries}

        monkeypatch.setattr(group, "time_in_turn", in_turn)
        ((row,),) = made.time().values()
        return row, len(takes)

    return run


def marks(row):
    return set(filter(None, row["marks"].split(";")))


class Kernel(Toy):
    """The toy benchmark with the clock of kernels."""

    clock = "kernel"

    def sustains(self, case, phase):
        return False


class Burst(Toy):
    def sustains(self, case, phase):
        return False


class Lasting(Kernel):
    def runs_back_to_back(self, case):
        return True


def test_quiet_machine_times_once_and_marks_nothing(timed):
    row, takes = timed()
    assert (takes, row["marks"]) == (1, "")
    assert (row["reference"], row["host_reference"], row["python_us"]) == (1.0, 1.0, 1000.0)


@pytest.mark.parametrize(("reading", "mark"), [(COLD, "drift"), (SLOW, "host")])
def test_disturbed_phase_is_timed_again_until_undisturbed(timed, reading, mark):
    row, takes = timed(QUIET, *[reading] * 3, QUIET)  # one slow reading is taken three times
    assert (takes, row["marks"]) == (2, "")
    row, takes = timed(QUIET, reading)
    assert (takes, marks(row)) == (MOST_TAKES, {mark})


def test_loaded_phase_is_timed_again_until_the_load_is_gone(timed):
    loaded = {"states": [LOADED]}
    row, takes = timed(timings=[loaded, {}])
    assert (takes, row["marks"]) == (2, "")
    row, takes = timed(timings=[loaded])
    assert (takes, marks(row)) == (MOST_TAKES, {"loaded"})


def test_references_that_crash_are_read_once_a_group(timed):
    row, takes = timed(None)
    assert (takes, row["marks"], row["reference"], row["python_us"]) == (1, "", None, None)


def test_row_shows_the_slowest_reading_of_its_phase(timed):
    row, _ = timed(QUIET, *[SLOW] * 3, QUIET, timings=[{}])
    assert row["host_reference"] == 1.0, "that of the take that counts"
    row, _ = timed(SLOW)
    assert (row["host_reference"], row["python_us"]) == (2.4, 2400.0)


def test_machine_that_stays_disturbed_is_not_timed_again(timed):
    history = history_of("cpu")
    takes = [timed(SLOW, history=history)[1] for _ in range(_MOST_DISTURBED + 2)]
    assert takes == [MOST_TAKES] * _MOST_DISTURBED + [1, 1]
    assert timed(QUIET, history=history)[1] == 1
    assert timed(SLOW, history=history)[1] == MOST_TAKES, "again after an undisturbed phase"


@pytest.mark.parametrize(
    ("benchmark", "host_ms", "device", "marked"),
    [
        (Toy, 0.95, "cuda", True),
        (Toy, 0.5, "cuda", False),
        (Kernel, 0.95, "cuda", False),
        (Kernel, None, "cpu", True),
    ],
)
def test_only_rows_that_depend_on_the_host_are_marked(timed, benchmark, host_ms, device, marked):
    host = {"host": [] if host_ms is None else [host_ms]}
    row, takes = timed(SLOW, timings=[host], device=device, benchmark=benchmark("toy"))
    assert ("host" in marks(row), takes > 1) == (marked, marked)
    assert row["host_reference"] == 2.4


@pytest.mark.parametrize(
    ("benchmark", "marked"), [(Toy, False), (Burst, True), (Kernel, True), (Lasting, False)]
)
def test_cap_that_is_on_record_is_no_mark(timed, benchmark, marked):
    row, _ = timed(timings=[{"marks": {"capped": None}}], benchmark=benchmark("toy"))
    assert ("capped" in marks(row)) is marked
    assert ("sustained_ms" in row) is (benchmark is Toy)


@pytest.mark.parametrize(
    ("readings", "timings"), [((), [{"states": [LOADED]}]), ((SLOW,), ())], ids=["loaded", "host"]
)
def test_disturbed_rounds_are_repeated_before_any_stretch(timed, monkeypatch, readings, timings):
    stretches = []
    monkeypatch.setattr(Group, "_complete", lambda *entry: stretches.append(entry) or True)
    _, takes = timed(*readings, timings=timings)
    assert (takes, len(stretches)) == (MOST_TAKES, 1)


def test_load_during_the_stretch_marks_the_row(timed):
    row, takes = timed(stretch=Stretch([1.0], LOADED))
    assert (takes, marks(row), row["other_load"]) == (1, {"loaded"}, 0.9)
