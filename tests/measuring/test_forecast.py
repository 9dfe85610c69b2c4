"""Tests of the time left: recorded seconds, scaled by what this machine has measured."""

import pytest

from lmperf.measuring import forecast
from lmperf.measuring.forecast import OTHERS, START, Forecast, duration, expected_s, recorded

RECORD = {
    **{("known", START): 5.0, ("known", OTHERS): 2.0, ("known", "n=9"): 10.0},
    **{("next", START): 5.0, ("next", OTHERS): 1.0},
}
SIX = [("known", f"n={n}", 10) for n in range(6)]  # 5 s, and 20 s for each group


@pytest.fixture(autouse=True)
def record(monkeypatch):
    monkeypatch.setattr(forecast, "recorded", lambda device: RECORD if device == "cuda" else {})


class Job:
    """A job on a clock that the test moves."""

    def __init__(self, groups=SIX, device="cuda", **options):
        self.now = 100.0
        self.forecast = Forecast(device, groups, clock=lambda: self.now, **options)

    def measure(self, *seconds):
        for one in seconds:
            self.now += one
            self.forecast.group_done()
        return self.forecast.left()


def test_expected_seconds_use_a_group_then_its_benchmark():
    groups = [("known", "n=9", 2), ("known", "n=1", 3), ("next", "n=1", 0.5)]
    assert expected_s("cuda", groups) == [5.0, 20.0, 6.0, 0.5]
    assert expected_s("cuda", [*groups, ("new", "n=9", 2)]) is None
    assert expected_s("mps", groups) is None


def test_machine_like_the_recorded_one_takes_what_was_recorded():
    job = Job(later=[[("next", "n=1", 30), ("next", "n=2", 25)], []])
    assert job.forecast.left().here_s == 125 and job.forecast.left().all_s == 125 + 60
    left = job.measure(25, 20)
    assert (left.here_s, left.all_s) == (80, 140)
    assert not left.late and not left.firm
    assert job.forecast.words() == "about 1 min 20 s left here, about 2 min 20 s in all"
    job.measure(20)
    assert job.forecast.words() == "1 min left here, 2 min in all"


def test_slower_machine_soon_has_a_longer_estimate():
    job = Job(later=[[("next", "n=1", 115)]])
    left = job.measure(50, 40, 40, 40)  # twice the record
    assert left.here_s == pytest.approx(80, rel=0.1)
    assert left.all_s - left.here_s == pytest.approx(240, rel=0.15)


def test_earlier_jobs_of_the_machine_scale_the_first_estimate():
    left = Job(earlier=(3000.0, 1000.0)).forecast.left()
    assert left.here_s == pytest.approx(375, rel=0.02) and left.firm


def test_estimate_falls_while_a_group_is_measured():
    job = Job()
    job.measure(25)
    job.now += 15
    assert job.forecast.left().here_s == 85


def test_group_that_takes_longer_than_expected_raises_the_estimate():
    job = Job()
    job.measure(25)
    job.now += 120
    left = job.forecast.left()
    assert left.late and left.here_s > 80
    assert job.forecast.words().startswith("at least ")


def test_last_group_that_is_late_gives_no_seconds():
    job = Job(groups=SIX[:1], later=[[("next", "n=1", 100)]])
    job.now += 300
    words = job.forecast.words()
    assert words.startswith("longer than expected here, at least") and words.endswith(" in all")
    assert Job(groups=SIX[:1]).forecast.words() == "about 25 s left"


def test_unrecorded_benchmark_has_no_time_before_its_first_group():
    job = Job([("new", "a", 2), ("new", "b", 4)], later=[[("next", "n=1", 15)]])
    assert job.forecast.words() == "" and job.forecast.expected_until(1) is None
    left = job.measure(30)
    assert left.here_s == 60 and not left.firm
    assert job.forecast.words() == "about 1 min left here, about 1 min 20 s in all"


def test_device_without_record_gives_only_its_own_benchmark():
    job = Job(device="mps", later=[[("next", "n=1", 15)]])
    assert job.forecast.words() == ""
    job.measure(30)
    assert job.forecast.words() == "about 2 min 30 s left here, at least 2 min 30 s in all"


def test_later_unrecorded_benchmark_makes_a_lower_bound():
    job = Job(later=[[("next", "n=1", 55)], [("new", "a", 1)]])
    job.measure(25, 20, 20)
    assert job.forecast.words() == "1 min left here, at least 2 min in all"


def test_after_the_last_group_only_the_rest_of_the_run_is_left():
    job = Job(groups=SIX[:1], later=[[("next", "n=1", 55)]])
    job.measure(25)
    assert job.forecast.words() == "about 1 min left in all"
    alone = Job(groups=SIX[:1])
    alone.measure(25)
    assert alone.forecast.words() == ""


def test_start_of_the_process_counts_as_time_spent():
    job = Job(age=5.0)
    assert job.forecast.left().here_s == 120


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.1, "5 s"), (38, "40 s"), (57.4, "55 s"), (58, "1 min"), (204, "3 min 20 s")),
        *((594, "9 min 50 s"), (596, "10 min"), (3570, "1 h"), (4140, "1 h 9 min")),
    ],
)
def test_duration_is_rounded_for_a_reader(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_shipped_record_has_each_line_that_an_estimate_needs(monkeypatch, device):
    monkeypatch.undo()
    known = recorded(device)
    assert {"attention", "end_to_end"} <= {stem for stem, _ in known}
    assert all({(stem, START), (stem, OTHERS)} <= known.keys() for stem, _ in known)
    assert all(seconds >= 0 for seconds in known.values())
    assert recorded("mps") == {}
