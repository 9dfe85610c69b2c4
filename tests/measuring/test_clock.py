"""Tests of the device clock, with CUDA events that the test scripts."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from lmperf.benchmark import Phase, WrongResult
from lmperf.measuring import clock
from lmperf.measuring.clock_settings import (
    LONGEST_LEAD_MS,
    OTHER_CLOCK_PAUSE_S,
    OTHER_CLOCK_SLICES,
    OUTLIVES_FOUND,
    SHORTEST_LEAD_MS,
)
from lmperf.measuring.rounds import LEAST_ROUNDS


@pytest.fixture
def timed(monkeypatch):
    """Times one call; the arguments say whether each start event has passed when queried."""
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)

    def call(*passed):
        answers, drawn, used = iter(passed), [], []
        event = SimpleNamespace(record=lambda: None, query=lambda: next(answers))
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
        monkeypatch.setattr(torch, "empty", lambda *size, **kind: torch.zeros(1))
        made, found = clock.EventClock(), clock.Slice()
        workload = SimpleNamespace(freshen=drawn.append)
        phase = Phase(run=lambda state: used.append(len(drawn)))
        made._call(workload, phase, found, False)
        return found, used, list(answers), made._leads.get(id(phase), SHORTEST_LEAD_MS)

    return call


def test_call_queued_before_the_device_starts_is_valid(timed):
    found, used, _, lead_ms = timed(False)
    assert used == [1] and len(found.host) == 1 and not found.host_bound
    assert lead_ms == SHORTEST_LEAD_MS


def test_late_call_is_repeated_with_longer_wait_and_new_inputs(timed):
    found, used, _, lead_ms = timed(True, True, False)
    assert used == [1, 2, 3], "a repeated call has fresh inputs"
    assert len(found.host) == 1 and not found.host_bound
    assert lead_ms >= 4 * SHORTEST_LEAD_MS


def test_call_late_after_the_longest_wait_is_host_bound(timed):
    found, used, left, lead_ms = timed(*[True] * 30)
    assert found.host_bound and len(found.host) == 1 and lead_ms == LONGEST_LEAD_MS
    assert len(used) == 30 - len(left) < 12


@pytest.fixture
def device(monkeypatch):
    """A simulated device: `wait_ms` maps the ms since the last event to those of a wait for it."""
    device = SimpleNamespace(ns=0, passed=0, wait_ms=lambda since: 0.0, of_clock=lambda: 0.01)
    device.queued = []

    def now():
        device.ns += 1000
        return device.ns

    def passed():
        device.passed = device.ns
        device.idle = bool(device.queued)  # the clock's own work, not that of a slice
        device.queued.clear()

    def synchronize():
        since = (device.ns - device.passed) / 1e6
        device.ns += int((device.of_clock() if device.idle else device.wait_ms(since)) * 1e6)

    event = SimpleNamespace(record=lambda: None, synchronize=passed)
    flush = SimpleNamespace(zero_=lambda: device.queued.append("work"))
    monkeypatch.setattr(clock, "now", now)
    monkeypatch.setattr(clock, "_elapsed_ms", lambda first, last: 0.0)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch, "empty", lambda *size, **kind: flush)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)

    def run(slices=LEAST_ROUNDS):
        made, phase = clock.EventClock(), Phase(run=lambda state: None)
        for _ in range(slices):
            made._begin()
            made._pairs = [(None, None)]
            made._finish(phase, clock.Slice())

    device.run = run
    return device


def test_device_work_that_outlives_its_call_is_wrong(device):
    device.wait_ms = lambda since: max(0.01, 0.5 - since)
    with pytest.raises(WrongResult, match=r"the device was busy for 0\.5 ms after the last event"):
        device.run()


def test_short_wait_for_the_device_is_not_a_wrong_result(device):
    device.wait_ms = lambda since: 0.05
    device.run(50)


def test_slow_driver_without_outliving_work_is_accepted(device):
    device.wait_ms = lambda since: 0.13  # as long after a pause as without one
    device.run(50)


def test_host_that_always_wakes_late_is_not_a_wrong_result(device):
    device.wait_ms = lambda since: max(0.01, 0.5 - since)
    device.of_clock = lambda: 0.5
    device.run(50)


def test_one_late_wait_in_many_slices_is_not_a_wrong_result(device):
    waits = iter([0.5, 0.01, 0.01] * 20)
    device.wait_ms = lambda since: next(waits)
    device.run(50)


class WokenLate(clock.Clock):
    """A clock whose first slices disagree with the host's time."""

    def __init__(self, late):
        super().__init__("cpu")
        self.late, self.slices = late, 0

    def _call(self, workload, phase, found, chosen):
        found.times.append(float(self.slices))

    def _finish(self, phase, found):
        self.slices += 1
        if self.slices <= self.late:
            raise clock.ClocksDisagree("its clock is wrong")


def test_slice_of_a_late_host_is_repeated_after_a_pause(monkeypatch):
    pauses = []
    monkeypatch.setattr(clock, "sleep", pauses.append)
    workload = SimpleNamespace(phases={"forward": None})
    made = WokenLate(OTHER_CLOCK_SLICES - 1)
    times = made.slice(workload, "forward", 1, False).times
    assert times == [float(OTHER_CLOCK_SLICES - 1)] * 2 ** (OTHER_CLOCK_SLICES - 1)
    assert pauses == [OTHER_CLOCK_PAUSE_S * 2**pause for pause in range(OTHER_CLOCK_SLICES - 1)]
    made = WokenLate(late=10**9)
    with pytest.raises(WrongResult, match="its clock is wrong"):
        made.slice(workload, "forward", 1, False)
    assert made.slices == OTHER_CLOCK_SLICES


@pytest.mark.parametrize(
    ("host_ms", "agrees"), [(8.0, True), (8.7, True), (8.8, False), (7.6, False)]
)
def test_events_and_host_clock_agree_within_tolerance(monkeypatch, host_ms, agrees):
    times = iter([0, int(host_ms * 1e6), *[int(host_ms * 1e6)] * 99])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    monkeypatch.setattr(clock, "_elapsed_ms", lambda first, last: 8.0)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    monkeypatch.setattr(torch, "empty", lambda *size, **kind: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    made = clock.EventClock()
    made._begin()
    with nullcontext() if agrees else pytest.raises(clock.ClocksDisagree):
        made._finish(Phase(run=lambda state: None), clock.Slice())


def test_fewest_rounds_suffice_to_detect_outliving_work():
    assert 2 * OUTLIVES_FOUND <= LEAST_ROUNDS
