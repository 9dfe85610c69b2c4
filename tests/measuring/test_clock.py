"""The clock's CUDA paths on a simulated device, whose time the host's calls do not wait for."""

from types import SimpleNamespace

import pytest
import torch

from lmperf.benchmark import Phase, Workload
from lmperf.measuring import clock
from lmperf.measuring.ranks import Alone


class Simulated:
    """A host and a device, each with its own time in ms; what is queued runs after both."""

    def __init__(self):
        self.host = self.device = 0.0

    def queue(self, ms, host_ms=0.0):
        self.host += host_ms
        begin = max(self.device, self.host)
        self.device = begin + ms

    def synchronize(self):
        self.host = max(self.host, self.device)

    def sleep(self, cycles):
        self.device = max(self.device, self.host) + cycles / 2e6

    def event(self, enable_timing):
        made = SimpleNamespace()

        def record():
            made.at = self.device = max(self.device, self.host)

        made.record, made.query = record, lambda: self.host >= made.at
        return made


@pytest.fixture
def cuda(monkeypatch):
    made = Simulated()
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "_sleep", made.sleep, raising=False)
    monkeypatch.setattr(clock, "_Event", made.event)
    monkeypatch.setattr(clock, "_elapsed_ms", lambda begin, end: end.at - begin.at)
    return made


def timed(cuda, host_ms, kernels):
    def run(_):
        for ms in kernels:
            cuda.queue(ms, host_ms)

    one = clock.Clock("cuda", Alone())
    one._flush = torch.zeros(1)
    return one, Workload({"f": Phase(run, before=lambda: cuda.queue(5.0, 0.1))})


def test_a_kernel_is_timed_without_its_host_behind_a_wait_that_grows(cuda):
    one, work = timed(cuda, 1.0, [0.2, 0.3])
    times, _ = one.kernels(work, "f", 3)
    assert times == pytest.approx([0.5] * 3)


def test_a_host_that_is_too_slow_decides_the_time(cuda):
    one, work = timed(cuda, 20.0, [0.2, 0.3])
    times, _ = one.kernels(work, "f", 2)
    assert all(ms > 15 for ms in times)


def test_parts_of_a_step_are_timed_in_its_stretch(cuda):
    one, _ = timed(cuda, 0.0, [])

    def parts(mark):
        for part, ms in (("forward", 1.0), ("backward", 4.0), ("forward", 1.0)):
            cuda.queue(ms, 0.01)
            mark(part)

    work = Workload({"f": Phase(lambda _: None, before=lambda: cuda.queue(5.0), parts=parts)})
    assert one.stretch(work, "f", 3)[0] == pytest.approx([11.0] * 3, abs=0.1)
    [found] = one.parts.values()
    assert found == pytest.approx({"forward": 2.0, "backward": 4.0}, abs=0.1)


def test_a_step_in_a_stretch_has_its_preparation_but_no_fast_host(cuda):
    one, work = timed(cuda, 0.01, [2.0, 2.0])
    assert one.stretch(work, "f", 4)[0] == pytest.approx([9.0] * 4, abs=0.2)
    one, work = timed(cuda, 30.0, [2.0, 2.0])
    assert all(ms > 30 for ms in one.stretch(work, "f", 4)[0])
