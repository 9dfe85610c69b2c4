"""The overlap ledger of real steps of two gloo processes."""

import pytest
from overlap_cases import ELEMENTS

pytestmark = pytest.mark.process


@pytest.fixture
def ledgers(two_ranks):
    return two_ranks[0]["ledgers"]


def share(found):
    return sorted(one.hidden_ms / one.communication_ms for one, _, _ in found)[len(found) // 2]


def test_transfers_under_work_are_hidden(ledgers):
    assert share(ledgers["overlapped"]) > 0.9


def test_step_that_only_seems_to_overlap_hides_nothing(ledgers):
    assert share(ledgers["waits_at_once"]) < 0.05
    for one, _, _ in ledgers["waits_at_once"]:
        assert one.compute_ms + one.communication_ms < 1.05 * one.step_ms


def test_waiting_for_a_slow_rank_is_no_communication(ledgers):
    for one, _, _ in ledgers["uneven"]:
        assert one.waited_ms > 400 and one.communication_ms < 0.5 * one.step_ms


def test_calls_and_bytes_are_those_that_were_launched(ledgers):
    for found in ledgers.values():
        assert {(calls, sent) for _, calls, sent in found} == {(2, 2 * 4 * ELEMENTS)}
