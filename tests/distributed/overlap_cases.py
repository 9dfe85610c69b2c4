"""Steps of two gloo processes, one of which works while it transfers, for the overlap ledger."""

import time

import torch
import torch.distributed as dist

from lmperf.distributed.ledger import entry
from lmperf.instruments.overlap import observed

# Kind of step -> how many are observed: three where their median is tested.
STEPS = {"overlapped": 3, "waits_at_once": 3, "uneven": 1}
ELEMENTS = 2_000_000
# Work that takes several times as long as the all-reduces, on a loaded machine too.
SIDE, MATMULS = 512, 60


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

    def uneven(self):
        if dist.get_rank() == 1:
            time.sleep(0.5)
        for one in self.begun():
            one.wait()


def ledgers_on(rank):
    """Name of a kind of step -> (ledger, calls, bytes sent) of each of its STEPS."""
    steps, found = Steps(), {}
    for name, count in STEPS.items():
        run = getattr(steps, name)
        run()
        seen = observed(run, rank, count)
        found[name] = [(entry(one.ranks), one.calls, one.sent_bytes) for one in seen]
    return found
