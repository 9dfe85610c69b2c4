"""The overlap ledger of real steps of two gloo processes, one of which works while it transfers."""

import time

import pytest
import torch
import torch.distributed as dist

from lmperf.distributed.ledger import entry
from lmperf.instruments.overlap import observed, steps_of
from tests.distributed.ranks import on_ranks

STEPS = 3
ELEMENTS = 4_000_000
# Work that takes several times as long as the all-reduces, on a loaded machine too.
SIDE, MATMULS = 512, 40


class Steps:
    """Steps with work and two all-reduces of ELEMENTS float32 each."""

    def __init__(self):
        self.tensors = [torch.ones(ELEMENTS) for _ in range(2)]
        self.matrix = torch.randn(SIDE, SIDE)

    def work(self):
        for _ in range(MATMULS):
            self.matrix @ self.matrix

    def begun(self):
        return [dist.all_reduce(one, async_op=True) for one in self.tensors]

    def overlapped(self):
        begun = self.begun()
        self.work()
        for one in begun:
            one.wait()

    def waits_at_once(self):
        for one in self.begun():
            one.wait()
        self.work()

    def after_the_work(self):
        self.work()
        for one in self.begun():
            one.wait()

    def uneven(self):
        if dist.get_rank() == 1:
            time.sleep(0.5)
        for one in self.begun():
            one.wait()


def ledgers_on(rank):
    """Name of a kind of step -> (ledger, calls, bytes sent) of each of STEPS steps."""
    steps, found = Steps(), {}
    for name in ("overlapped", "waits_at_once", "after_the_work", "uneven"):
        run = getattr(steps, name)
        run()
        seen = observed(run, rank, STEPS)
        found[name] = [(entry(one.ranks), one.calls, one.sent_bytes) for one in seen]
    return found


@pytest.fixture(scope="module")
def ledgers():
    return on_ranks(2, ledgers_on)[0]


def share(found):
    return sorted(one.hidden_ms / one.communication_ms for one, _, _ in found)[len(found) // 2]


@pytest.mark.process
def test_transfers_under_work_are_hidden(ledgers):
    assert share(ledgers["overlapped"]) > 0.9


@pytest.mark.process
@pytest.mark.parametrize("name", ["waits_at_once", "after_the_work"])
def test_step_that_only_seems_to_overlap_hides_nothing(ledgers, name):
    assert share(ledgers[name]) < 0.05
    for one, _, _ in ledgers[name]:
        assert one.compute_ms + one.communication_ms < 1.05 * one.step_ms


@pytest.mark.process
def test_waiting_for_a_slow_rank_is_no_communication(ledgers):
    for one, _, _ in ledgers["uneven"]:
        assert one.waited_ms > 400 and one.communication_ms < 0.5 * one.step_ms


@pytest.mark.process
def test_calls_and_bytes_are_those_that_were_launched(ledgers):
    for found in ledgers.values():
        assert {(calls, sent) for _, calls, sent in found} == {(2, 2 * 4 * ELEMENTS)}


def kernels(*starts_and_durations):
    """A Chrome trace whose times begin at 1,000 ms: a kernel for each start and duration in ms."""
    events = [
        {"ph": "X", "cat": "kernel", "name": str(number), "ts": start * 1e3, "dur": length * 1e3}
        for number, (start, length) in enumerate(starts_and_durations)
    ]
    return {"baseTimeNanoseconds": 1_000_000_000, "traceEvents": events}


def test_kernels_belong_to_the_step_in_which_they_start():
    trace = kernels((1, 2), (4, 5), (10, 1), (12, 3))
    first, second = steps_of(trace, [(1000, 1009.5), (1011.5, 1016)])
    assert [e["name"] for e in first.events] == ["0", "1"]
    assert [e["name"] for e in second.events] == ["3"], "one ran between the steps"
    assert second.interval(second.events[0]) == (1012, 1015)


def test_kernel_beyond_the_end_of_its_step_is_an_error():
    with pytest.raises(RuntimeError, match=r"ends 1\.500 ms after its step"):
        steps_of(kernels((1, 2), (8, 3)), [(1000, 1009.5)])
