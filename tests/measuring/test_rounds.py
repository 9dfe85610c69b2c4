"""Timing in turn: order, rounds, and what is taken again, with seats that are told the time."""

import itertools
import random
from dataclasses import dataclass, field

import pytest

from lmperf.measuring import rounds
from lmperf.measuring.rounds import LEAST_ROUNDS, Pace, Taken, Timings, in_turn
from lmperf.measuring.state import State

PACE = Pace(0, 10, 1)
CAP = State(throttle=0x4)


@dataclass(eq=False)
class Told:
    """A seat whose slices take the times that it is told."""

    times: object
    numerics: str = "float32"
    states: object = field(default_factory=lambda: itertools.repeat(State()))
    calls: list = field(default_factory=list)
    log: list = field(default_factory=list)
    lost_at: int | None = None

    def warm_up(self, least_ms):
        return self.first, self.first

    def slice(self, repetitions, checked):
        self.calls.append((repetitions, checked))
        self.log.append(self)
        if len(self.calls) == self.lost_at:
            return None
        return Taken([next(self.times)] * repetitions, next(self.states))

    first: float = 1.0


def steady(milliseconds, **more):
    return Told(itertools.repeat(milliseconds), first=milliseconds, **more)


def shaky(seed, centre=1.0, width=0.3):
    chance = random.Random(seed)
    return Told(centre * chance.uniform(1 - width, 1 + width) for _ in itertools.count())


class Ticking:
    """A clock on which every reading is a little later."""

    def __init__(self, step=1e-6):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def never(_=None):
    return random.Random(0)


def test_each_round_begins_with_another_and_the_first_runs_once_more():
    log = []
    first, second = steady(1.0, log=log), steady(2.0, log=log)
    found = in_turn([first, second], PACE, never(), Ticking())
    assert log[:6] == [first, second, first, second, first, first]
    assert found[first].rounds == [1.0] * LEAST_ROUNDS
    assert found[first].again == [1.0] * LEAST_ROUNDS
    assert found[second].again == []


def test_the_first_of_each_numerics_is_timed_against_itself():
    seats = [steady(1.0), steady(2.0), steady(0.5, numerics="bfloat16")]
    found = in_turn(seats, PACE, never(), Ticking())
    assert [bool(found[seat].again) for seat in seats] == [True, False, True]
    alone = in_turn([steady(1.0)], PACE, never(), Ticking(), again=False)
    assert [timings.again for timings in alone.values()] == [[]]


def test_a_slice_is_filled_with_short_calls_and_holds_one_long_call():
    short, long = steady(1.0), steady(500.0)
    in_turn([short, long], PACE, never(), Ticking())
    assert {repetitions for repetitions, _ in short.calls} == {10}
    assert {repetitions for repetitions, _ in long.calls} == {1}


def test_rounds_are_added_until_a_comparison_is_decided():
    sure = in_turn([steady(1.0), steady(1.5)], PACE, never(), Ticking())
    unsure = in_turn([shaky(1), shaky(2)], PACE, never(), Ticking())
    assert {len(t.rounds) for t in sure.values()} == {LEAST_ROUNDS}
    assert all(len(t.rounds) > 2 * LEAST_ROUNDS for t in unsure.values())


def test_the_cap_in_time_ends_the_rounds_and_is_named():
    found = in_turn([shaky(1), shaky(2)], PACE, never(), Ticking(step=2.0))
    for timings in found.values():
        assert len(timings.rounds) == LEAST_ROUNDS
        assert timings.columns()["marks"] == "time_cap"


def test_the_last_round_has_a_call_that_is_checked():
    seat = steady(1.0)
    in_turn([seat], PACE, never(), Ticking())
    rounds_of_seat = seat.calls[::2]  # the other ones are of the seat against itself
    assert rounds_of_seat[-1][1]


def test_a_seat_that_is_lost_is_left_out_and_the_others_go_on():
    lost, other = steady(1.0, lost_at=4), steady(2.0)
    found = in_turn([lost, other], PACE, never(), Ticking())
    assert list(found) == [other]
    assert len(found[other].rounds) == LEAST_ROUNDS


def test_a_slice_under_a_cap_is_taken_again(monkeypatch):
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    once = steady(1.0, states=itertools.chain([CAP], itertools.repeat(State())))
    assert "capped" not in in_turn([once], PACE, never(), Ticking())[once].columns()["marks"]
    always = steady(1.0, states=itertools.repeat(CAP))
    assert in_turn([always], PACE, never(), Ticking())[always].columns()["marks"] == "capped"
    # A call that brings the device to its cap does so every time: it is not doubled for ever.
    slices = 2 * LEAST_ROUNDS
    assert slices < len(always.calls) < 1.5 * slices


def test_statistics_are_of_all_times():
    columns = Timings(
        [1.0, 2.0, 3.0, 4.0, 10.0], [1.0, 2.0], states=[State(clock_mhz=9.0)]
    ).columns()
    assert columns["median_ms"] == 3.0
    assert columns["mean_ms"] == 4.0
    assert columns["std_ms"] == pytest.approx(3.5355, rel=1e-4)
    assert (columns["p20_ms"], columns["p80_ms"]) == (1.8, pytest.approx(5.2))
    assert columns["rounds_ms"] == "1.0;2.0"
    assert columns["rounds_mhz"] == "9.0"


def test_what_a_row_is_marked_with():
    timings = Timings()
    timings.add(Taken([1.0], State(other_load=0.5), host_bound=True, left={"threads"}))
    assert timings.columns()["marks"] == "host_bound;settings;loaded"


@pytest.mark.parametrize("clock", ["kernel", "step"])
def test_few_rows_may_take_longer_on_a_processor_alone(clock):
    usual, patient = (rounds.pace_of(clock, "cpu", patient) for patient in (False, True))
    assert patient.cap_s >= 10 * usual.cap_s and patient.slice_ms > usual.slice_ms
    assert rounds.pace_of(clock, "cuda", True) == rounds.pace_of(clock, "cuda")
