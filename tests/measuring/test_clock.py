"""The clock of a device, on events that a test has in its hand."""

from types import SimpleNamespace

import pytest
import torch

from lmperf.benchmark import Phase
from lmperf.measuring import clock
from lmperf.measuring.clock_settings import LONGEST_LEAD_MS, SHORTEST_LEAD_MS


@pytest.fixture
def timed(monkeypatch):
    """A call by a clock whose start events have passed, or not, when they are asked."""
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


def test_a_call_that_the_host_queued_in_time_is_taken_as_it_is(timed):
    found, used, _, lead_ms = timed(False)
    assert used == [1] and len(found.host) == 1 and not found.host_bound
    assert lead_ms == SHORTEST_LEAD_MS


def test_a_call_that_came_late_is_taken_again_on_other_inputs_after_a_longer_wait(timed):
    found, used, _, lead_ms = timed(True, True, False)
    assert used == [1, 2, 3], "an implementation could keep the answer of the call before"
    assert len(found.host) == 1 and not found.host_bound
    assert lead_ms >= 4 * SHORTEST_LEAD_MS


def test_past_the_longest_wait_it_is_host_bound(timed):
    found, used, left, lead_ms = timed(*[True] * 30)
    assert found.host_bound and len(found.host) == 1 and lead_ms == LONGEST_LEAD_MS
    assert len(used) == 30 - len(left) < 12
