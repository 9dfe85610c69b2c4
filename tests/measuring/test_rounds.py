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

PACE = Pace(0, 10, 1)
CAP = State(throttle=0x4)


@dataclass(eq=False)
class Scripted:
    """An entry whose slices (short runs of timed calls) take given times."""

    times: object
    dtype: str = "float32"
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

    def dtype(self, entry):
        return entry.dtype

    def warm_up(self, entry, least_ms):
        return entry.first, entry.first

    def slice(self, entry, repetitions, checked):
        return entry.slice(repetitions, checked)


def timed(entries, clock=None, **more):
    return time_in_turn(entries, Timer(), PACE, random.Random(0), clock or Ticking(), **more)


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


def test_rounds_rotate_and_first_entry_is_timed_twice():
    log = []
    first, second = steady(1.0, log=log), steady(2.0, log=log)
    found = timed([first, second])
    assert log[:6] == [first, second, first, second, first, first]
    assert found[first].rounds == [1.0] * LEAST_ROUNDS
    assert found[first].again == [1.0] * LEAST_ROUNDS
    assert found[second].again == []


def test_first_entry_of_each_dtype_is_timed_against_itself():
    entries = [steady(1.0), steady(2.0), steady(0.5, dtype="bfloat16")]
    found = timed(entries)
    assert [bool(found[entry].again) for entry in entries] == [True, False, True]
    alone = timed([steady(1.0)], again=False)
    assert [timings.again for timings in alone.values()] == [[]]


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
    first_slices = entry.calls[::2]  # every second slice is the A/A slice
    assert first_slices[-1][1]


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
    slices = 2 * LEAST_ROUNDS
    assert slices < len(always.calls) < 1.5 * slices


def test_row_statistics_cover_the_times_of_all_slices():
    columns = Timings(
        [1.0, 2.0, 3.0, 4.0, 10.0], [1.0, 2.0], states=[State(clock_mhz=9.0)]
    ).columns()
    assert columns["median_ms"] == 3.0
    assert columns["mean_ms"] == 4.0
    assert columns["std_ms"] == pytest.approx(3.5355, rel=1e-4)
    assert (columns["p20_ms"], columns["p80_ms"]) == (1.8, pytest.approx(5.2))
    assert columns["rounds_ms"] == "1.0;2.0"
    assert columns["rounds_mhz"] == "9.0"


def test_row_marks_name_what_disturbed_its_slices():
    timings = Timings()
    timings.add(
        SliceResult([1.0], State(other_load=0.5), host_bound=True, changed_settings={"threads"})
    )
    assert timings.columns()["marks"] == "host_bound;settings;loaded"


@pytest.mark.parametrize("clock", ["kernel", "step"])
def test_patient_timing_takes_longer_on_cpu_not_on_cuda(clock):
    usual, patient = (rounds.pace_of(clock, "cpu", patient) for patient in (False, True))
    assert patient.cap_s >= 10 * usual.cap_s and patient.slice_ms > usual.slice_ms
    assert rounds.pace_of(clock, "cuda", True) == rounds.pace_of(clock, "cuda")
