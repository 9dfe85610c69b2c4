"""Tests of the judgement of the references' readings, with readings that the test scripts."""

import pytest

from lmperf.measuring.readings import _FIRST_READINGS, _RETAKES, Reading, References

USUAL = Reading(10.0, 20.0, 5.0, 1000.0)


def taking(*readings):
    """A function that gives these readings one after the other, and the last one for ever."""
    left = list(readings)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def references():
    """References of a GPU's machine that know the usual times."""
    found = References("cuda", {})
    found.read(taking(USUAL))
    return found


def test_first_reading_is_taken_several_times():
    counted = []
    References("cpu", {}).read(lambda: counted.append(1) or USUAL)
    assert len(counted) == _FIRST_READINGS


@pytest.mark.parametrize("lucky", [Reading(5.0, 8.0), Reading(90.0, 70.0)])
def test_lucky_or_cold_first_reading_marks_nothing_later(lucky):
    references = References("cpu", {})
    references.read(taking(lucky, USUAL))
    found = references.read(taking(USUAL))
    assert references.device_ratio(found) == 1.0 and not references.drifted(found)


@pytest.mark.parametrize(
    ("now", "ratio", "drifted"),
    [
        (Reading(10.0, 20.0), 1.0, False),
        (Reading(10.9, 20.0), 1.09, False),
        (Reading(10.0, 22.2), 1.11, True),
        (Reading(5.0, 22.2), 1.11, True),
        (Reading(5.0, 10.0), 0.5, False),  # faster than usual
        (Reading(), None, False),
    ],
)
def test_device_slower_than_usual_has_drifted(references, now, ratio, drifted):
    assert references.device_ratio(now) == (ratio and pytest.approx(ratio))
    assert references.drifted(now) is drifted


def test_device_is_compared_with_the_median_of_the_run(references):
    for _ in range(3 * _FIRST_READINGS):
        found = references.read(taking(Reading(12.0, 24.0)))
    assert not references.drifted(found), "this is the usual time by now"


@pytest.mark.parametrize(
    ("now", "ratio", "slow"),
    [
        (Reading(launch_us=5.0, python_us=1000.0), 1.0, False),
        (Reading(launch_us=5.0, python_us=1090.0), 1.09, False),
        (Reading(launch_us=5.6, python_us=1000.0), 1.12, True),
        (Reading(python_us=1110.0), 1.11, True),
    ],
)
def test_host_slower_than_its_best_is_slow(references, now, ratio, slow):
    assert references.host_ratio(now) == pytest.approx(ratio)
    assert references.slow_host(now) is slow


def test_host_is_compared_with_the_best_of_earlier_runs():
    references = References("cuda", {"python_us": 800.0})
    assert references.slow_host(references.read(taking(USUAL)))
    assert references.host_ratio(USUAL) == 1.25
    better = References("cuda", {"python_us": 4000.0})
    assert better.host_ratio(better.read(taking(USUAL))) == 1.0


def test_slow_reading_is_taken_again_and_the_fastest_counts(references):
    slow = Reading(10.0, 20.0, 5.0, 3000.0)
    found = references.read(taking(slow, Reading(15.0, 19.0, 5.1, 1010.0), slow))
    assert found == Reading(10.0, 19.0, 5.0, 1010.0)
    counted = []
    found = references.read(lambda: counted.append(1) or slow)
    assert len(counted) == 1 + _RETAKES and references.slow_host(found)


def test_failed_reading_is_none_and_changes_nothing(references):
    assert references.read(taking(None)) is None
    assert references.device_ratio(USUAL) == 1.0
    assert References("cpu", {}).read(taking(None)) is None
