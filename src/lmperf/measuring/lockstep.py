"""Keeps the ranks of a group in step: they decide alike, and begin each call at the same time.

Collectives match only if every rank makes the same calls in the same order. So a decision that
depends on a time, such as whether to repeat a call, is taken from the largest value over the ranks.
"""

from __future__ import annotations

from datetime import timedelta
from time import perf_counter_ns as now

import torch
import torch.distributed as dist

from lmperf.benchmark import Rank

# Limit of collectives: longer than any step of a benchmark. The supervisor ends a group that hangs.
NEVER = timedelta(days=7)
# From the agreement on a start until the start: more than the ranks need to leave the agreement.
_START_NS = 300_000


class Lockstep:
    """Agrees on values among the ranks over a gloo group of its own, apart from the timed calls.

    Args:
        rank: this rank. The default process group is initialised.
    """

    def __init__(self, rank: Rank):
        self._rank = rank
        self._group = dist.new_group(backend="gloo", timeout=NEVER) if rank.ranks > 1 else None
        self._token = torch.zeros(1, device=rank.device)

    def longest(self, value: float) -> float:
        """Return the largest value over the ranks."""
        if self._group is None:
            return value
        values = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(values, dist.ReduceOp.MAX, self._group)
        return values.item()

    def start_together(self) -> None:
        """Return at the same time on every rank: all processes share one monotonic clock."""
        if self._group is None:
            return
        start = torch.tensor([now() + _START_NS], dtype=torch.int64)
        dist.all_reduce(start, dist.ReduceOp.MAX, self._group)
        at = start.item()
        while now() < at:
            pass

    def queue_together(self) -> None:
        """Queue a tiny all-reduce by NCCL: later work starts at the same time on every device."""
        if self._group is not None:
            dist.all_reduce(self._token)
