"""A user's optimizer class: how a train step uses it, and its check against AdamW in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lmperf.attention.accuracy import UNIT_ROUNDOFF
from lmperf.benchmark import Implementation, Unsupported
from lmperf.own.model import Build, builder, trained_by
from lmperf.own.signatures import is_model, is_optimizer
from lmperf.transformer.implementations import eager
from lmperf.transformer.steps import StepMaker
from lmperf.transformer.weights import error_of, rms, sample

STEPS = 5
# Of the timed steps: those of torch's AdamW.
_TIMED = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
# Of the check: none is a default, and each changes the weights by far more than the bound.
_CHECKED = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-3, "weight_decay": 0.1}
# Roundings of an update, in units of u. At most 10 of each moment in five steps, 10 of the square
# root, division and products, and 10 of each bias correction 1 - beta^t, if it is in float32.
_ROUNDINGS = 50
_FLOAT32 = UNIT_ROUNDOFF["float32"]


@dataclass(frozen=True)
class OwnOptimizer:
    """Makes a user's optimizer for a model: a `prepare` of `ModelProblem`."""

    optimizer_class: type[torch.optim.Optimizer]

    def __call__(self, model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return self.optimizer_class(list(model.parameters()), lr=learning_rate, **_TIMED)

    def check(self, model: nn.Module, seed: int) -> tuple[float, float, str]:
        """The largest error of weights after five steps, its bound, and the parameter's name.

        The weights have the shapes of the model's parameters, and random values; gradients are
        random, of sizes on both sides of epsilon. The reference is AdamW in float64 (Loshchilov and
        Hutter 2019), in the form with the smaller error: epsilon is added to the square root of
        the second moment after its bias correction, as in PyTorch, or before it (Kingma and Ba
        2015, end of section 2).

        The error is relative to the change in all steps, as `weights.error_of` has it.
        Its bound is a sum. Each step rounds a weight of size p twice, by the decay and the update:
        2 u p / c for a change c in each step. An update has at most `_ROUNDINGS` roundings. Decay
        that follows the update decays the update, too: by lr * weight_decay.
        """
        names = {tuple(one.shape): name for name, one in model.named_parameters()}
        device = next(model.parameters()).device
        generator = torch.Generator(device).manual_seed(seed)
        draw = lambda shape: torch.randn(shape, generator=generator, device=device)  # noqa: E731
        before = {names[shape]: draw(shape) for shape in names}
        own = {name: nn.Parameter(weight.clone()) for name, weight in before.items()}
        sizes = {name: 10 ** (draw(one.shape) - 2) for name, one in before.items()}
        means = {name: draw(one.shape) for name, one in before.items()}
        optimizer = self.optimizer_class(list(own.values()), **_CHECKED)
        given: list[dict[str, Tensor]] = []
        for _ in range(STEPS):
            noises = {name: 0.5 * draw(one.shape) for name, one in own.items()}
            given.append({name: sizes[name] * (means[name] + noises[name]) for name in own})
            for name, parameter in own.items():
                parameter.grad = given[-1][name].clone()
            optimizer.step()
        return min(_worst(own, before, given, is_torchs) for is_torchs in (True, False))


def _worst(
    own: Mapping[str, Tensor],
    before: Mapping[str, Tensor],
    given: Sequence[Mapping[str, Tensor]],
    is_torchs: bool,
) -> tuple[float, float, str]:
    """Error, bound and name of the parameter whose error is the largest over its bound."""
    found = []
    for name, weight in before.items():
        exact = _adamw(weight.double(), [of[name].double() for of in given], is_torchs)
        change = sample(exact - weight.double())
        wrong = sample(own[name].detach().double() - exact)
        error = error_of(wrong, torch.zeros_like(wrong), change)
        storage = 2 * STEPS * _FLOAT32 * rms(weight) / rms(change)
        order = _CHECKED["lr"] * _CHECKED["weight_decay"]
        found.append((error, storage + _ROUNDINGS * _FLOAT32 + order, name))
    return max(found, key=lambda one: one[0] / one[1])


def _adamw(weight: Tensor, gradients: Sequence[Tensor], is_torchs: bool) -> Tensor:
    """A weight after a step of AdamW for each gradient; see `OwnOptimizer.check`."""
    rate, eps, decay = (_CHECKED[name] for name in ("lr", "eps", "weight_decay"))
    beta1, beta2 = _CHECKED["betas"]
    mean = square = torch.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient.square()
        root = math.sqrt(1 - beta2**step)
        spread = square.sqrt() / root + eps if is_torchs else (square.sqrt() + eps) / root
        weight = (1 - rate * decay) * weight - rate / (1 - beta1**step) * mean / spread
    return weight


def plugged(implementation: Implementation, given: Any) -> tuple[Any, Build | None]:
    """What makes the step of an implementation, and what builds the model that it trains.

    A user's optimizer class becomes the maker of a step of the eager model. The latter is None for
    the project's model.

    Raises:
        Unsupported: something else than an optimizer is to train a model of the configuration.
    """
    if implementation.to_compile and not is_model(given):
        raise Unsupported("compiled: only a model class is compiled")
    if is_optimizer(given):
        maker = StepMaker(eager, {"float32": OwnOptimizer(given)})
        return maker, trained_by(implementation)[1]
    if implementation.models:
        raise Unsupported("model: only a strategy or an optimizer trains a model that is named")
    return given, builder(given)
