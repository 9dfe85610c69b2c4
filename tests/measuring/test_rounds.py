"""Tests of timing in turn, with entries whose times the test scripts.

An entry is an implementation that is timed; a slice is a short run of timed calls of one entry; a
round is one slice of every entry.
"""

import itertools
import random
from dataclasses import dataclass, field

import pytest

from lmperf.measuring import rounds
from lmperf.measuring.rounds import LEAST_ROUNDS, Pace, SliceResult, Timings, time_in_turn
from lmperf.measuring.state import State
from lmperf.measuring.sustained import Stretch

PACE = Pace(0, 10, 1)
CAP = State(throttle=0x4)


@dataclass(eq=False)
class Scripted:
    """An entry whose slices (short runs of timed calls) take given times."""

    times: object
    states: object = field(default_factory=lambda: itertools.repeat(State()))
    calls: list = field(default_factory=list)
    log: list = field(default_factory=list)
    fails_at: int | None = None

    def slice(self, repetitions, checked):
        self.calls.append((repetitions, checked))
        self.log.append(self)
        if len(self.calls) == self.fails_at:
            return None
        return SliceResult([next(self.times)] * repetitions, next(self.states))

    first: float = 1.0


class Timer:
    """A fake of `rounds.Timer` that takes times from `Scripted` entries."""

    def __init__(self, between=lambda: None):
        self.between = between

    def warm_up(self, entry, least_ms):
        return entry.first, entry.first

    def slice(self, entry, repetitions, checked):
        return entry.slice(repetitions, checked)


def timed(entries, clock=None, timer=None, **more):
    clock, timer = clock or Ticking(), timer or Timer()
    return time_in_turn(entries, timer, PACE, random.Random(0), clock, **more)


def steady(milliseconds, **more):
    return Scripted(itertools.repeat(milliseconds), first=milliseconds, **more)


def shaky(seed, centre=1.0, width=0.3):
    chance = random.Random(seed)
    return Scripted(centre * chance.uniform(1 - width, 1 + width) for _ in itertools.count())


class Ticking:
    """A fake clock that advances with every reading."""

    def __init__(self, step=1e-6):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_rounds_begin_with_another_entry_each_time():
    log = []
    first, second = steady(1.0, log=log), steady(2.0, log=log)
    found = timed([first, second])
    assert log[:6] == [first, second, second, first, first, second]
    assert found[first].rounds == [1.0] * LEAST_ROUNDS


def test_twins_have_all_rounds_but_need_no_verdict():
    first, twin = shaky(1), shaky(2)
    found = timed([first, twin], twins={twin})
    assert {len(timings.rounds) for timings in found.values()} == {LEAST_ROUNDS}


def test_references_are_read_once_in_the_middle_of_the_rounds():
    entry, at = steady(1.0), []
    timed([entry], timer=Timer(lambda: at.append(len(entry.calls))))
    assert at == [LEAST_ROUNDS // 2]


def test_slice_has_many_short_calls_or_one_long_call():
    short, long = steady(1.0), steady(500.0)
    timed([short, long])
    assert {repetitions for repetitions, _ in short.calls} == {10}
    assert {repetitions for repetitions, _ in long.calls} == {1}


def test_rounds_are_added_until_comparison_is_decided():
    sure = timed([steady(1.0), steady(1.5)])
    unsure = timed([shaky(1), shaky(2)])
    assert {len(t.rounds) for t in sure.values()} == {LEAST_ROUNDS}
    assert all(len(t.rounds) > 2 * LEAST_ROUNDS for t in unsure.values())


def test_time_limit_ends_rounds_without_a_mark():
    found = timed([shaky(1), shaky(2)], Ticking(step=2.0))
    for timings in found.values():
        assert len(timings.rounds) == LEAST_ROUNDS
        assert timings.columns()["marks"] == ""


def test_last_round_checks_a_result():
    entry = steady(1.0)
    timed([entry])
    assert entry.calls[-1][1]


def test_failed_entry_is_dropped_and_others_continue():
    lost, other = steady(1.0, fails_at=4), steady(2.0)
    found = timed([lost, other])
    assert list(found) == [other]
    assert len(found[other].rounds) == LEAST_ROUNDS


def test_throttled_slice_is_repeated(monkeypatch):
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    once = steady(1.0, states=itertools.chain([CAP], itertools.repeat(State())))
    assert "capped" not in timed([once])[once].columns()["marks"]
    always = steady(1.0, states=itertools.repeat(CAP))
    assert timed([always])[always].columns()["marks"] == "capped"
    # A call that always throttles the device is not repeated for ever.
    assert LEAST_ROUNDS < len(always.calls) < 2 * LEAST_ROUNDS


def test_row_statistics_cover_the_times_of_all_slices():
    columns = Timings(
        [1.0, 2.0, 3.0, 4.0, 10.0], [1.0, 2.0], states=[State(clock_mhz=9.0)]
    ).columns()
    assert columns["median_ms"] == 3.0
    assert columns["mean_ms"] == 4.0
    assert columns["std_ms"] == pytest.approx(3.5355, rel=1e-4)
    assert (columns["p20_ms"], columns["p80_ms"]) == (1.8, pytest.approx(5.2))
    assert columns["least_ms"] == 1.0
    assert columns["rounds_ms"] == "1.0;2.0"
    assert columns["rounds_mhz"] == "9.0"


def test_row_marks_name_what_disturbed_its_slices():
    timings = Timings()
    timings.add(SliceResult([1.0], CAP, host_bound=True, changed_settings={"threads"}))
    assert timings.columns()["marks"] == "host_bound;capped;settings"


def test_load_during_the_stretch_counts_like_load_in_the_rounds():
    timings = Timings([1.0], [1.0], states=[State(other_load=0.01, seconds=1.0)])
    assert not timings.is_loaded
    timings.stretch = Stretch([1.0], State(other_load=0.5, seconds=1.0))
    assert timings.is_loaded and timings.columns()["other_load"] == 0.5


@pytest.mark.parametrize(("host", "bound"), [([], False), ([8.9], False), ([9.1], True)])
def test_call_is_host_bound_if_queueing_takes_most_of_it(host, bound):
    assert Timings([10.0], [10.0], host=host).is_host_bound is bound


@pytest.mark.parametrize("clock", ["kernel", "step"])
def test_patient_timing_takes_longer_on_cpu_not_on_cuda(clock):
    usual, patient = (rounds.pace_of(clock, "cpu", patient) for patient in (False, True))
    assert patient.cap_s >= 10 * usual.cap_s and patient.slice_ms > usual.slice_ms
    assert rounds.pace_of(clock, "cuda", True) == rounds.pace_of(clock, "cuda")
