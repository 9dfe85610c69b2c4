"""Clocks of a rank: the ranks of a group time each call together.

The worker sends the seed from which every rank draws the seeds of its inputs. Whether a call or a
slice is repeated, and how long the device waits before a call, is agreed among the ranks.
"""

from __future__ import annotations

import random

from lmperf.benchmark import Phase, Rank, WrongResult
from lmperf.measuring.clock import Clock, ClocksDisagree, EventClock, Slice, WallClock
from lmperf.measuring.lockstep import Lockstep

# What a rank found after a slice; the gravest of all ranks decides.
_FINE, _REPEAT, _WRONG = range(3)


class _RankClock(Clock):
    """A clock in lock-step with those of the other ranks."""

    _lockstep: Lockstep

    def seed(self, seed: int) -> None:
        """Draw the seeds of the inputs from `seed`, the same on every rank."""
        self._random = random.Random(seed)

    def _longest(self, value: float) -> float:
        return self._lockstep.longest(value)

    def _align(self) -> None:
        self._lockstep.start_together()


class RankWallClock(_RankClock, WallClock):
    """Times calls by wall time; every rank begins a call at the same time."""

    def __init__(self, rank: Rank, lockstep: Lockstep):
        super().__init__(rank.device)
        self._lockstep = lockstep


class RankEventClock(_RankClock, EventClock):
    """Times calls by CUDA events; the start events of all devices coincide."""

    def __init__(self, lockstep: Lockstep):
        super().__init__()
        self._lockstep = lockstep

    def _align(self) -> None:
        self._lockstep.queue_together()

    def _finish(self, phase: Phase, found: Slice) -> None:
        fault, grade = None, _FINE
        try:
            super()._finish(phase, found)
        except WrongResult as wrong:
            fault, grade = wrong, _REPEAT if isinstance(wrong, ClocksDisagree) else _WRONG
        worst = self._longest(grade)
        if fault is not None and grade == worst:
            raise fault
        if worst == _REPEAT:
            raise ClocksDisagree("its clock is wrong on another rank")
        if worst == _WRONG:
            raise WrongResult("work outlives the call on another rank")


def rank_clock(kind: str, rank: Rank, lockstep: Lockstep) -> RankWallClock | RankEventClock:
    """Return the clock of a rank for kernels (`kernel`) or steps (`step`).

    Device events need NCCL, whose collectives the host queues; gloo's wait on the host.
    """
    if kind == "kernel" and rank.backend == "nccl":
        return RankEventClock(lockstep)
    return RankWallClock(rank, lockstep)
