"""Checks of steps on several ranks against one process on the same data.

Before a strategy is timed, its weights after five steps are compared with those of one process
(`Reference.gate`). After timed calls, two gradients are (`Timed.check`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lmperf.benchmark import Rank, WrongResult
from lmperf.distributed.distributed_problem import Build, DistributedProblem, release
from lmperf.distributed.strategies import Training, one_rank
from lmperf.distributed.weight_bounds import WHOLE_BATCH, Expected
from lmperf.gate import Gate
from lmperf.precision import precision
from lmperf.transformer.guards import integers
from lmperf.transformer.model_accuracy import explained_by_rounding
from lmperf.transformer.reference import eager, unused_in
from lmperf.transformer.sizes import ModelSize
from lmperf.transformer.weights import error_of, rms, sample

# Steps of the gate: from the second on, a step uses weights that steps before it have changed.
STEPS = 5
# Learning rate of the gate for a model of this width and depth; see `gate_rate`.
_RATE, _WIDTH, _LAYERS = 2e-3, 256, 4
_GRADIENTS_CHECKED = 2
# Bound of the number of weights whose bits differ between ranks: none may.
NO_DIFFERENCE = 0.5


def gate_rate(size: ModelSize) -> float:
    """The learning rate of the gate's steps.

    AdamW changes every weight of a matrix by about the rate r, so the output of a layer by up to
    r d_model, and that of the model by num_layers times as much. The rate is such that this change
    is the same for all sizes: a few percent of a weight for the smallest one, so that a step with
    stale weights has other gradients. With a larger one a large model diverges within five steps,
    and multiplies the rounding errors that two correct runs differ by.
    """
    return _RATE * (_WIDTH / size.d_model) * (_LAYERS / size.num_layers)


class Reference:
    """One process on the data of a problem: its weights after five steps.

    The weights are computed before the model of a strategy exists, so that both need not fit into
    memory, and only samples of them are kept.
    """

    def __init__(self, problem: DistributedProblem):
        self._problem = problem
        self._expected: dict[tuple[str, int], Expected] = {}

    def gate(self, build: Build, blocks: str, tolerance: str) -> Gate:
        """Compare the weights after five steps on all ranks with those of one process.

        The learning rate is not zero. One process averages the gradients of the parts of the batch
        that the ranks have; for a single rank, those of single sequences. Bounds:
        `lmperf.distributed.weight_bounds`.

        build: makes the training, which is freed afterwards. blocks: how the blocks run, in the
        one process too: `compiled`, or anything else for eager ones.
        """
        problem = self._problem
        ranks = problem.rank.ranks
        with problem.tokens_restored(), precision(problem.dtype):
            parts, tolerance = (
                (ranks, tolerance) if ranks > 1 else (len(problem.tokens), WHOLE_BATCH)
            )
            expected = self._alone("compiled" if blocks == "compiled" else "eager", parts)
            eps = agreed(expected.eps, problem.rank)
            training = build(problem.setup(gate_rate(problem.size), eps))
            for step in range(STEPS):
                problem.freshen(problem.seed + step)
                problem.step(training)
            gate = _compared(problem, training, expected, tolerance)
        del training
        release()
        return gate

    def _alone(self, blocks: str, parts: int) -> Expected:
        if (blocks, parts) not in self._expected:
            self._expected[blocks, parts] = _train_alone(self._problem, blocks, parts)
            release()
        return self._expected[blocks, parts]


def steps_alone(
    parameters: Mapping[str, nn.Parameter],
    optimizer: Optimizer,
    backward: Callable[[int, int], object],
    parts: int,
) -> Iterator[dict[str, float]]:
    """Yield before each step of the gate in one process, once its gradients are averaged.

    What is yielded is name -> RMS of the first step's gradient. Their median becomes AdamW's
    epsilon: with a small one the sign of a gradient decides, and rounding decides the sign of a
    gradient near zero. The caller takes the step.

    Args:
        parameters: of the model, by name.
        optimizer: of these parameters.
        backward: (step, part) -> adds the gradients of a part of the batch of a step.
        parts: in how many parts the batch is split, as the ranks split it.

    Raises:
        WrongResult: a parameter has no gradient.
    """
    sizes: dict[str, float] = {}
    for step in range(STEPS):
        for parameter in parameters.values():
            parameter.grad = None
        for part in range(parts):
            backward(step, part)
        gradients = {name: parameter.grad for name, parameter in parameters.items()}
        if fault := unused_in(name for name, gradient in gradients.items() if gradient is None):
            raise WrongResult(fault)
        torch._foreach_div_(list(gradients.values()), parts)
        if step == 0:
            sizes = {name: rms(gradient) for name, gradient in gradients.items()}
            for group in optimizer.param_groups:
                group["eps"] = median(sizes.values())
        yield sizes


def _train_alone(problem: DistributedProblem, blocks: str, parts: int) -> Expected:
    setup = problem.setup(gate_rate(problem.size))
    training = one_rank(setup, blocks)
    parameters = dict(zip(setup.names, training.model.parameters(), strict=True))
    before = {name: sample(weight) for name, weight in training.weights()}

    def backward(step: int, part: int) -> None:
        if part == 0:
            problem.freshen(problem.seed + step)
        problem.loss(training, part, parts).backward()

    for first_sizes in steps_alone(parameters, training.optimizer, backward, parts):
        sizes = first_sizes
        training.optimizer.step()
    (group,) = training.optimizer.param_groups
    after = {name: sample(weight) for name, weight in training.weights()}
    widths = [width for parameter in training.model.parameters() for width in parameter.shape]
    return Expected(
        weights=after,
        changes={name: after[name] - before[name] for name in after},
        gains={name: max(1.0, size / group["eps"]) for name, size in sizes.items()},
        eps=group["eps"],
        steps=STEPS,
        layers=problem.size.num_layers,
        longest=max(problem.tokens.numel(), *widths),
    )


def agreed(value: float, rank: Rank) -> float:
    """Rank 0's value, on every rank.

    The ranks' own values differ by rounding where backward kernels add in any order.
    """
    shared = torch.tensor([value], dtype=torch.float64, device=rank.device)
    dist.broadcast(shared, 0)
    return float(shared)


def _compared(
    problem: DistributedProblem, training: Training, expected: Expected, tolerance: str
) -> Gate:
    errors, digests = {}, []
    for name, weight in training.weights():
        errors[name] = expected.errors(name, weight)
        digests.append(integers(weight.detach().contiguous()).sum())
    if missing := sorted(expected.weights.keys() - errors.keys()):
        raise WrongResult(f"the strategy returned no weight {missing[0]}")
    bounds = expected.bounds(problem.dtype, tolerance)
    _, worst, error, bound = max(
        (error / bound, name, error, bound)
        for name in errors
        for error, bound in zip(errors[name], bounds[name], strict=True)
    )
    gate_errors = {"parameters": error, "ranks": differing(torch.stack(digests))}
    limits = {"parameters": bound, "ranks": NO_DIFFERENCE}
    return Gate(gate_errors, limits, None, {"parameters": worst}, "one process")


def differing(digests: Tensor) -> float:
    """How many of the digests of weights [weights] are not the same on all ranks."""
    least, most = digests.clone(), digests.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float((least != most).sum())


class Timed:
    """The training of a strategy that is timed, at learning rate zero, so that weights stay.

    Attributes:
        training: the training.
    """

    def __init__(self, problem: DistributedProblem, build: Build):
        self._problem = problem
        setup = problem.setup()
        self._names = setup.names
        self.training = build(setup)
        self._digest = self._digest_now()

    def run(self) -> Tensor:
        """One step; returns this rank's loss."""
        return self._problem.step(self.training)

    @property
    def tensors(self) -> list[Tensor]:
        """This rank's parameters, whole or shards, as its optimizer knows them."""
        groups = self.training.optimizer.param_groups
        parameters = [parameter for group in groups for parameter in group["params"]]
        return [getattr(parameter, "_local_tensor", parameter) for parameter in parameters]

    def _digest_now(self) -> Tensor:
        return torch.stack([integers(tensor.detach()).sum() for tensor in self.tensors])

    def check(self, result: Tensor) -> Gate:
        """Compare the loss of the last step, and two of its gradients, with one process.

        The gradients are those of parameters that the seed of the tokens chooses; one process
        averages eager gradients over the parts of the batch. A missing reduction, or an average
        over a wrong number, is an error of about one. A strategy that cannot gather gradients is
        checked by its loss alone. Bounds: `accuracy.explained_by_rounding`.

        Raises:
            WrongResult: the call changed its tokens, targets or weights.
        """
        problem = self._problem
        problem.require_tokens()
        if not torch.equal(self._digest_now(), self._digest):
            raise WrongResult("the call changed its weights, though the learning rate is zero")
        names, got = [], {}
        if self.training.gradients is not None:
            names = random.Random(problem.drawn).sample(self._names, _GRADIENTS_CHECKED)
            got = {n: sample(g) for n, g in self.training.gradients() if n in names}
        self.training.optimizer.zero_grad(set_to_none=True)  # one process needs their memory
        exact, limits = self._alone(names)
        errors = {"loss": float((result - exact["loss"]).abs() / exact["loss"].abs())}
        where = {}
        if names:
            wrong = {name: error_of(got[name], exact[name], exact[name]) for name in names}
            where["gradient"] = max(wrong, key=wrong.__getitem__)
            errors["gradient"] = wrong[where["gradient"]]
        return Gate(errors, {k: limits[k] for k in errors}, None, where, "one process")

    def _alone(self, names: list[str]) -> tuple[dict[str, Tensor], dict[str, float]]:
        """This rank's loss, samples of averaged gradients, and bounds of both."""
        problem, ranks = self._problem, self._problem.rank.ranks
        model = problem.setup().model
        sums: dict[str, Tensor] = {}
        for part in range(ranks):
            results = eager(model, *problem.part(part, ranks), problem.dtype, names)
            for name in names:
                gradient = sample(results[name]) / ranks
                sums[name] = sums[name] + gradient if name in sums else gradient
            if part == problem.rank.number:
                mine = {"logits": results["logits"], "loss": results["loss"]}
        limits = explained_by_rounding(problem.dtype, model, problem.size.num_layers, mine)
        return {"loss": mine["loss"], **sums}, limits
