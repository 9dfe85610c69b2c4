"""The train step of a public leaderboard on several ranks, each with a part of the batch.

The model, its blocks and its loss are those of `lmperf.transformer.leaderboard`. Each rank has all
bf16 weights and gradients. With a sequence less per rank, more blocks keep the results of their
matmuls. A sharded optimizer keeps a rank's share of the moments (15 GiB less on two ranks), so that
nearly all blocks do; the ranks then broadcast the weights that they have updated.

All-reducing 16 GB of gradients takes some 50 ms on two GPUs and is hidden under the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmperf.benchmark import Rank, Unsupported
from lmperf.distributed.data_parallel import reducer_of
from lmperf.distributed.gating import NO_DIFFERENCE, STEPS, agreed, differing, steps_alone
from lmperf.gate import Gate
from lmperf.transformer import leaderboard
from lmperf.transformer.fused_adamw import FusedAdamW
from lmperf.transformer.leaderboard import TWIN, LongProblem
from lmperf.transformer.sizes import Shape
from lmperf.transformer.training import loss_of

# Each step changes the weights by some bf16 units (8e-5), so that rounding loses no change.
# A larger rate makes so wide a model diverge, which multiplies rounding errors.
_RATE = 1e-3
# Largest error of a weight, relative to what one step changes in it (RMS over the steps). A missed
# step is an error of one to two. One process does the same arithmetic, up to the order of sums in
# backward kernels. Weights are rounded at random: if an update is small beside the distance of two
# bf16 numbers, as for the weights of norms, its relative difference d makes an error of sqrt(d).
_MOST_OF_STEP = 0.5


class Exchange:
    """AdamW on gradients that are averaged over the ranks during the backward pass.

    Has the methods of an optimizer that `lmperf.transformer.training.train_step` calls. A rank
    updates whole parameters, unlike one of `ShardedOptimizer`: how `FusedAdamW` rounds an element
    depends on its index in the parameter, and must be as in one process.

    sharded: whether each rank keeps the moments of a share of the parameters only.
    """

    def __init__(self, model: nn.Module, rank: Rank, rate: float, sharded: bool):
        self._parameters = list(model.parameters())
        owners = owners_of([parameter.numel() for parameter in self._parameters], rank.ranks)
        self._owners = owners if sharded and rank.ranks > 1 else None
        pairs = zip(self._parameters, owners, strict=True)
        mine = [
            parameter for parameter, owner in pairs if self._owners is None or owner == rank.number
        ]
        self.adamw = FusedAdamW(mine, rate)
        self._reducer = reducer_of(self._parameters, None) if rank.ranks > 1 else None

    def set_eps(self, eps: float) -> None:
        """Set AdamW's epsilon."""
        for group in self.adamw.param_groups:
            group["eps"] = eps

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Wait for the averages, update this rank's share, and receive the others'."""
        if self._reducer is not None:
            self._reducer.finish()
        self.adamw.step()
        if self._owners is not None:
            pairs = zip(self._parameters, self._owners, strict=True)
            sent = [
                dist.broadcast(parameter.detach(), owner, async_op=True)
                for parameter, owner in pairs
            ]
            for work in sent:
                work.wait()


def owners_of(numels: Sequence[int], ranks: int) -> list[int]:
    """Return the rank that updates each parameter; each rank has about as many elements."""
    loads, owners = [0] * ranks, [0] * len(numels)
    for index in sorted(range(len(numels)), key=lambda index: -numels[index]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += numels[index]
    return owners


class RankProblem(LongProblem):
    """A rank's part of a problem: the whole model, its part of the batch, and the optimizer.

    Weights, and the tokens of all ranks together, are the same on every rank for the same seed.

    sharded: of `Exchange`. fused: of `LongProblem`.

    Raises:
        Unsupported: the batch does not split over the ranks.
    """

    def __init__(
        self,
        shape: Shape,
        rank: Rank,
        seed: int,
        sharded: bool = False,
        fused: bool = False,
        rate: float = 0.0,
    ):
        if shape.batch % rank.ranks:
            raise Unsupported(f"a batch of {shape.batch} does not split over {rank.ranks} ranks")
        self._rank = rank
        super().__init__(_part_of(shape, rank), rank.device, seed, fused)
        self.optimizer = Exchange(self.model, rank, rate, sharded)

    @property
    def resident(self) -> list[Any]:
        return [self.model, self.optimizer.adamw, self.tokens, self.targets]

    def freshen(self, seed: int) -> None:
        self.draw(seed, self._rank.number, self._rank.ranks)

    def draw(self, seed: int, part: int, parts: int) -> None:
        """Overwrite tokens and targets by one of `parts` parts of the batch of a seed."""
        generator = torch.Generator(self.tokens.device).manual_seed(seed)
        for mine in (self.tokens, self.targets):
            whole = mine.new_empty(parts * len(mine), mine.shape[1])
            mine.copy_(whole.random_(self._vocab, generator=generator).chunk(parts)[part])


def _part_of(shape: Shape, rank: Rank) -> Shape:
    """The shape of a rank's part of the batch."""
    return replace(shape, batch=shape.batch // rank.ranks)


def gate(
    problem: RankProblem,
    step: Callable[[], Tensor],
    kept: Sequence[str],
    seed: int,
    make: Callable[..., RankProblem],
    rank: Rank,
    twin: Shape = TWIN,
) -> Gate:
    """Check a step: its code on a twin, its exchange of gradients, and its own loss.

    A twin of each rank's part, and the loss, are compared as in `lmperf.transformer.leaderboard`.
    The weights of a twin after five steps of all ranks are compared with those of one process, and
    bit by bit between the ranks, as are the weights of the problem.

    make: (shape, rank, seed, rate=) -> a problem of the strategy.
    """
    alone = replace(rank, number=0, ranks=1)
    small = partial(make, _part_of(twin, rank), alone, seed)
    gate_alone = leaderboard.gate(problem, step, kept, small)
    where, error, differing = _five_steps(make, twin, rank, seed, (kept[0], kept[-1]))
    ranks = differing + differing_weights(problem.model)
    errors = {**gate_alone.errors, "parameters": error, "ranks": ranks}
    bounds = {"parameters": _MOST_OF_STEP, "ranks": NO_DIFFERENCE}
    places = {**gate_alone.where, "parameters": where}
    return Gate(errors, {**gate_alone.bounds, **bounds}, gate_alone.pytorch, places)


def _five_steps(
    make: Callable[..., RankProblem], shape: Shape, rank: Rank, seed: int, kept: Sequence[str]
) -> tuple[str, float, float]:
    """The weight with the largest error after five steps, its error, and weights that differ."""
    weights, steps, eps = _one_process(make, shape, rank, seed, kept)
    ours = make(shape, rank, seed, rate=_RATE)
    ours.optimizer.set_eps(agreed(eps, rank))
    step = ours.step(kept)
    for number in range(STEPS):
        ours.freshen(seed + number)
        step()
    wrong = _distances(ours.model, weights)
    errors = {name: _ratio(error, steps[name]) for name, error in wrong.items()}
    worst = max(errors, key=errors.__getitem__)
    return worst, errors[worst], differing_weights(ours.model)


def _one_process(
    make: Callable[..., RankProblem], shape: Shape, rank: Rank, seed: int, kept: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, float], float]:
    """Take five steps in one process on the whole batch.

    The process adds the gradients of the ranks' parts as an all-reduce does.

    Returns name -> weight after all steps, name -> norm of its change in one step (RMS over the
    steps), and AdamW's epsilon.
    """
    alone = make(_part_of(shape, rank), replace(rank, number=0, ranks=1), seed, rate=_RATE)
    parameters, adamw = dict(alone.model.named_parameters()), alone.optimizer.adamw
    way, squares = alone.way(kept), dict.fromkeys(parameters, 0.0)

    def backward(step: int, part: int) -> None:
        alone.draw(seed + step, part, rank.ranks)
        loss_of(way, alone.tokens, alone.targets).backward()

    for _ in steps_alone(parameters, adamw, backward, rank.ranks):
        before = {name: weight.detach().clone() for name, weight in parameters.items()}
        adamw.step()
        for name, moved in _distances(alone.model, before).items():
            squares[name] += moved**2 / STEPS
    steps = {name: math.sqrt(square) for name, square in squares.items()}
    weights = {name: weight.detach() for name, weight in parameters.items()}
    return weights, steps, adamw.param_groups[0]["eps"]


def _distances(model: nn.Module, others: Mapping[str, Tensor]) -> dict[str, float]:
    return {
        name: _norm(weight.detach() - others[name]) for name, weight in model.named_parameters()
    }


def _ratio(error: float, scale: float) -> float:
    """An error over a scale; infinite for an error of a weight without a change."""
    return error / scale if scale else math.inf if error else 0.0


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float32))


def differing_weights(model: nn.Module) -> float:
    """The number of weights (tensors) whose bits differ between ranks."""
    bits = (weight.detach().view(torch.int16) for weight in model.parameters())
    return differing(torch.stack([weight.sum(dtype=torch.int64) for weight in bits]))
