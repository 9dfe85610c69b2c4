"""Tests of the stopwatch, which adds up the seconds of a job by kind of work."""

import pytest

from lmperf.measuring.stopwatch import KINDS, Stopwatch, process_age


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    clock = Clock()
    stopwatch = Stopwatch(age=2.0, clock=clock)

    def after(seconds, words):
        clock.now += seconds
        stopwatch.enter(words)

    return stopwatch, after


def test_seconds_belong_to_the_announced_step(watch):
    stopwatch, after = watch
    for seconds, words in ((3, "preparing"), (1, "first call"), (5, "timing"), (7, "timing")):
        after(seconds, words)
    after(11, "checking")
    row = stopwatch.row("attention", "gpu", groups=4, rows=9)
    found = {name: row[name] for name in KINDS if row[name]}
    assert found == {"start_s": 5, "preparing_s": 1, "first_calls_s": 5, "timing_s": 18}
    assert row["wall_s"] == 29 == sum(row[name] for name in KINDS)
    assert (row["stem"], row["groups"], row["rows"]) == ("attention", 4, 9)
    assert row["started_at"] < row["finished_at"]


def test_unknown_step_counts_as_other(watch):
    stopwatch, after = watch
    after(0, "waiting for another measurement")
    after(4, "saving")
    assert stopwatch.row("x", "cpu", 1, 1)["other_s"] == 4


def test_process_age_is_a_number_of_seconds():
    assert 0 <= process_age() < 1e6
