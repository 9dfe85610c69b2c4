"""The leaderboard's step, fully sharded, on each rank: a tiny model, and a planted fault."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from leaderboard_cases import KEPT, TINY

from lmperf.benchmark import Rank
from lmperf.benchmarks.distributed_timeline import rows_of
from lmperf.distributed import sharded_leaderboard
from lmperf.distributed.sharded_leaderboard import ShardedProblem
from lmperf.instruments.overlap import observed
from lmperf.transformer.fused_loss import linear_cross_entropy


def run(rank: Rank) -> dict[str, Any]:
    """Columns of the gate of the step, and of one in which the gradients of rank 1 count twice.

    shards: elements of this rank's parameters, over those of the model. line: the time line of a
    step, and its ledger.
    """
    problem = ShardedProblem(TINY, rank, 1)
    step = problem.step(KEPT)
    mine = sum(getattr(one, "_local_tensor", one).numel() for one in problem.resident[:-3])
    found = {"gate": _gate(problem, step, rank), "shards": mine / TINY.size.parameters(TINY.vocab)}
    found["line"] = rows_of(observed(step, rank, 3))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharded_leaderboard, "linear_cross_entropy", partial(_twice, rank))
        found["planted"] = _gate(problem, step, rank)
    return found


def _twice(rank: Rank, *inputs: torch.Tensor) -> torch.Tensor:
    loss = linear_cross_entropy(*inputs)
    return 2 * loss - loss.detach() if rank.number == 1 else loss


def _gate(problem: ShardedProblem, step, rank: Rank) -> dict[str, Any]:
    make = ShardedProblem
    return sharded_leaderboard.gate(problem, step, KEPT, 1, make, rank, TINY).columns
