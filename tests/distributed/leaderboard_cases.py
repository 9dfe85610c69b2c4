"""What the tests of the leaderboard's step on several ranks run on each rank, on a tiny model."""

from collections import Counter
from functools import partial

import pytest
import torch
import torch.distributed as dist

from lmperf.benchmark import Rank
from lmperf.distributed import leaderboard
from lmperf.distributed.data_parallel import InPlaceReducer
from lmperf.distributed.leaderboard import RankProblem
from lmperf.transformer.checkpointing import ATTENTION, MATMULS
from lmperf.transformer.sizes import ModelSize, Shape

TINY = Shape(ModelSize(32, 64, 2, 2), 96, 16, 2)
KEPT = [ATTENTION, MATMULS]
STRATEGIES = {"data_parallel": {}, "sharded_moments": {"sharded": True}}


def gates(rank: Rank) -> dict[str, dict]:
    """Name -> columns of a strategy's gate, and the elements of one moment on this rank."""
    return {name: _gate(rank, **options) for name, options in STRATEGIES.items()}


def wrong(rank: Rank) -> dict[str, dict]:
    """As `gates`, of a step with one reduction fewer, and one without broadcasts."""
    return {
        "one reduction fewer": _with(InPlaceReducer, "_ready", _all_but_the_third(), rank),
        "no broadcast": _with(dist, "broadcast", lambda *_, **__: _Done(), rank, sharded=True),
    }


def _gate(rank: Rank, **options: bool) -> dict:
    torch.compiler.set_stance("force_eager")
    make = partial(RankProblem, **options)
    problem = make(TINY, rank, 1)
    step = problem.step(KEPT)
    found = leaderboard.gate(problem, step, KEPT, 1, make, rank, TINY)
    moments = [state["exp_avg"].numel() for state in problem.optimizer.adamw.state.values()]
    return {**found.columns, "moments": sum(moments)}


def _with(module, name: str, function, rank: Rank, **options: bool) -> dict:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, name, function)
        return _gate(rank, **options)


def _all_but_the_third():
    """Reduce the gradient of every parameter, but not in the third step."""
    original, calls = InPlaceReducer._ready, Counter()

    def ready(self, index):
        calls[self, index] += 1
        if calls[self, index] != 3:
            original(self, index)

    return ready


class _Done:
    def wait(self) -> None:
        pass
