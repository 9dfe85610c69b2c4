"""One language model to run: weights, tokens, the phases that are timed, and the gate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lmperf.attention.accuracy import UNIT_ROUNDOFF, blockwise_error
from lmperf.benchmark import Gate, Phase
from lmperf.transformer.flops import flops
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.sizes import SIZES, VOCAB_SIZE
from lmperf.transformer.training import adamw, autocast, train_step

Model = Callable[[Tensor], Tensor]

# Gradients that the gate looks at: behind the whole backward pass, and behind none of the blocks.
_CHECKED_GRADIENTS = {"dqkv": "blocks.0.attention.qkv.weight", "dnorm": "norm.weight"}


class ModelProblem:
    """A TransformerLM of a named size, with random weights and a batch of random tokens.

    All implementations and dtypes of a cell share it. The learning rate is zero: a step does all of
    its arithmetic, and every case finds the weights that the gate's reference has.

    Args:
        size: key of `lmperf.transformer.sizes.SIZES`.
        context: tokens of a sequence.
        batch: sequences.
        device: where weights and tokens are.
        seed: of weights, tokens and targets.
    """

    def __init__(self, size: str, context: int, batch: int, device: str, seed: int):
        self._size, self._context, self._batch = SIZES[size], context, batch
        torch.manual_seed(seed)
        with torch.device(device):
            self.model = TransformerLM.of_size(self._size, VOCAB_SIZE, context)
            self.tokens = torch.randint(VOCAB_SIZE, (batch, context))
            self.targets = torch.randint(VOCAB_SIZE, (batch, context))
        self.optimizer = adamw(self.model, learning_rate=0.0)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def resident(self) -> list[Any]:
        """What lives as long as the model: weights and gradients, optimizer state, tokens."""
        return [self.model, self.optimizer, self.tokens, self.targets]

    def inference(self, dtype: str) -> Tensor:
        """Logits without a graph."""
        with torch.no_grad(), autocast(dtype, self.tokens.device):
            return self.model(self.tokens)

    def train_step(self, dtype: str, model: Model | None = None) -> Tensor:
        """Cleared gradients, forward, backward, AdamW; the loss."""
        called = self.model if model is None else model
        return train_step(called, self.optimizer, self.tokens, self.targets, dtype)

    def phases(self, model: Model, dtype: str) -> dict[str, Phase]:
        """What is timed of a model; only a train step clears the gradients inside the clock."""

        def clear() -> None:
            self.optimizer.zero_grad(set_to_none=True)

        def forward(_: object = None) -> Tensor:
            return self._loss(model, dtype)

        def cleared_forward() -> Tensor:
            clear()
            return forward()

        def phase(name: str, run: Callable[[Any], Any], before: Callable[[], Any]) -> Phase:
            return Phase(run, before, flops(self._size, self._context, self._batch, name))

        return {
            "forward": phase("forward", forward, clear),
            "backward": phase("backward", lambda loss: loss.backward(), cleared_forward),
            "forward_backward": phase("forward_backward", lambda _: forward().backward(), clear),
            "train_step": phase(
                "train_step", lambda _: self.train_step(dtype, model), lambda: None
            ),
        }

    def _loss(self, model: Model, dtype: str) -> Tensor:
        with autocast(dtype, self.tokens.device):
            return cross_entropy(model(self.tokens), self.targets)

    def gate(self, model: Model, dtype: str, phases: Sequence[str]) -> Gate:
        """Logits, loss and two gradients against float64 with the same weights.

        Rounding errors of the layers add like a random walk, 2 additions a layer, so that the bound
        is a number of unit roundoffs times the square root of twice the layers.
        """
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(dtype, self.tokens.device):
            logits = model(self.tokens)
            loss = cross_entropy(logits, self.targets)
        got = {"logits": logits.detach(), "loss": loss.detach().reshape(1, 1)}
        if set(phases) - {"forward"}:
            loss.backward()
            got |= _checked_gradients(self.model)
        self.optimizer.zero_grad(set_to_none=True)
        errors = {
            name: blockwise_error(value, self._reference[name], block=value.shape[-2])
            for name, value in got.items()
        }
        bound = _roundoffs_allowed(dtype) * (2 * self._size.num_layers) ** 0.5
        return Gate(errors, dict.fromkeys(errors, bound))

    @cached_property
    def _reference(self) -> dict[str, Tensor]:
        """The same tensors in float64, each block recomputed in the backward to save memory."""
        model = copy.deepcopy(self.model).double()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in _CHECKED_GRADIENTS.values())
        x = model.embedding(self.tokens).requires_grad_()
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        logits = model.head(model.norm(x))
        loss = cross_entropy(logits, self.targets)
        loss.backward()
        got = {"logits": logits.detach(), "loss": loss.detach().reshape(1, 1)}
        return got | _checked_gradients(model)


def _checked_gradients(model: TransformerLM) -> dict[str, Tensor]:
    """The gradients that the gate looks at, as matrices."""
    gradients = {name: model.get_parameter(at).grad for name, at in _CHECKED_GRADIENTS.items()}
    return {name: grad.reshape(-1, grad.shape[-1]) for name, grad in gradients.items()}


def _roundoffs_allowed(dtype: str) -> float:
    # float32 sums run over up to 10,240 terms without the wider accumulator that the rest has.
    return UNIT_ROUNDOFF[dtype] * {"float32": 64.0}.get(dtype, 8.0)
