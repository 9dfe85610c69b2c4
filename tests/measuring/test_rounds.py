"""Timing in turn: order, repetitions and statistics, with a clock that is told the time."""

import pytest

from lmperf.benchmark import Phase, Workload
from lmperf.measuring.rounds import ROUNDS, Pace, Timings, in_turn, quantile, warm_up


class ToldClock:
    """Gives each phase the time that its `run` returns."""

    def __init__(self):
        self.calls = []

    def times(self, phase, repetitions):
        self.calls.append((phase, repetitions))
        return [phase.run(phase.before()) for _ in range(repetitions)]


def workload(milliseconds):
    return Workload({"forward": Phase(lambda _: milliseconds)})


def pairs(*milliseconds):
    return [(w, w.phases["forward"]) for w in map(workload, milliseconds)]


def test_each_round_has_a_slice_of_each_and_the_first_once_more():
    told = []
    results = in_turn(ToldClock(), pairs(1.0, 2.0), Pace(0, 10), told.append)
    assert [result.rounds for result in results] == [[1.0] * ROUNDS, [2.0] * ROUNDS]
    assert results[0].again == [1.0] * ROUNDS
    assert results[1].again == []
    assert told[2:5] == [0, 1, 0] and told[5:8] == [1, 0, 0]


def test_a_slice_is_filled_with_short_calls_and_holds_one_long_call():
    short, long = in_turn(ToldClock(), pairs(1.0, 500.0), Pace(0, 10), lambda _: None)
    assert len(short.times) == 10 * ROUNDS
    assert len(long.times) == ROUNDS


def test_at_least_five_rounds():
    assert ROUNDS >= 5


def test_what_comes_before_a_phase_runs_each_time():
    prepared = []
    clock = ToldClock()
    warm_up(clock, Phase(lambda state: state, before=lambda: prepared.append(1) or 3.0), Pace(0, 1))
    assert prepared == [1]


def test_the_context_of_a_workload_is_entered_for_its_calls_alone():
    inside = []

    class Context:
        def __enter__(self):
            inside.append(True)

        def __exit__(self, *_):
            inside.pop()

    seen = []
    with_context = Workload({}, context=Context)
    measured = Phase(lambda _: seen.append(len(inside)) or 1.0)
    other = Phase(lambda _: seen.append(-len(inside)) or 1.0)
    workloads = [(with_context, measured), (Workload({}), other)]
    in_turn(ToldClock(), workloads, Pace(0, 1), lambda _: None)
    assert set(seen) == {1, 0}


def test_statistics_are_of_all_times():
    statistics = Timings(times=[1.0, 2.0, 3.0, 4.0, 10.0], rounds=[1.0, 2.0]).statistics()
    assert statistics["median_ms"] == 3.0
    assert statistics["mean_ms"] == 4.0
    assert statistics["std_ms"] == pytest.approx(3.5355, rel=1e-4)
    assert (statistics["p20_ms"], statistics["p80_ms"]) == (1.8, pytest.approx(5.2))
    assert statistics["rounds_ms"] == "1.0;2.0"


@pytest.mark.parametrize(("fraction", "value"), [(0.0, 1.0), (0.5, 2.0), (0.25, 1.5), (1.0, 3.0)])
def test_quantiles_interpolate(fraction, value):
    assert quantile([3.0, 1.0, 2.0], fraction) == value
