"""The train step of a public leaderboard: an 8.1B model at context 32,768, on one device.

Weights, gradients and both moments are bf16: 60.5 GiB. What is left of an H200 holds activations.
A block of 65,536 tokens saves 8.5 GiB for its backward pass, or 0.5 GiB with a checkpoint. For one
GiB more, a block can keep the output of its attention, which spares 35 TFLOP of recomputation, or
results of matmuls, which spare 4.4 TFLOP (2 d FLOPs for each of their elements, of 2 bytes). So
every block keeps its attention, and as many blocks as fit keep their matmuls as well: the last
ones, whose activations are the first to be freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lmperf.gate import Gate
from lmperf.transformer import model_accuracy
from lmperf.transformer.checkpointing import MATMULS, selective_blocks
from lmperf.transformer.fused_loss import CHUNK, linear_cross_entropy
from lmperf.transformer.implementations import compile_static, sdpa, triton
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.reference import eager, float64_reference
from lmperf.transformer.sizes import LEADERBOARD, Shape
from lmperf.transformer.steps import bfloat16_adamw
from lmperf.transformer.training import WithLoss, draw, train_step

DTYPE = "bfloat16"
# What is compared with float64, and with one process: the same widths, a block of either kind.
TWIN = Shape(replace(LEADERBOARD.size, num_layers=2), vocab=10_000, context=2048, batch=2)


def kept_by_block(layers: int, rest: str, matmuls: int) -> list[str]:
    """What each block keeps: the last `matmuls` blocks their matmuls, the others `rest`."""
    return [rest] * (layers - matmuls) + [MATMULS] * matmuls


class LongProblem:
    """A model with bf16 weights and moments, its optimizer and a batch of random tokens.

    The learning rate is zero: a step does all of its arithmetic and changes no weight.

    fused: whether blocks have fused kernels for norms, RoPE and SwiGLU.
    """

    def __init__(self, shape: Shape, device: str, seed: int, fused: bool = False):
        self.size, self._vocab, self._fused = shape.size, shape.vocab, fused
        torch.manual_seed(seed)
        with torch.device(device):
            self.model = TransformerLM.of_size(shape.size, shape.vocab, shape.context)
            self.tokens = torch.empty(shape.batch, shape.context, dtype=torch.int64)
        self.targets = torch.empty_like(self.tokens)
        self.freshen(seed)
        self.optimizer = bfloat16_adamw(self.model, 0.0)

    @property
    def resident(self) -> list[Any]:
        """Objects that live as long as the problem."""
        return [self.model, self.optimizer, self.tokens, self.targets]

    def freshen(self, seed: int) -> None:
        """Overwrite tokens and targets, in place, by random ones of a seed."""
        draw(seed, self.tokens, self.targets, vocab=self._vocab)

    def way(self, kept: Sequence[str]) -> WithLoss:
        """The model with compiled blocks and selective checkpoints, and its chunked loss.

        kept: what each block keeps; see `lmperf.transformer.checkpointing.KEPT`.
        """
        model = triton(self.model) if self.tokens.is_cuda else sdpa(self.model)
        if self._fused:
            from lmperf.transformer.fused_blocks import with_fused_blocks

            model = with_fused_blocks(model, whole=True)
        hidden, norm, head = selective_blocks(model, kept), compile_static(model.norm), model.head

        def loss(tokens: Tensor, targets: Tensor) -> Tensor:
            return linear_cross_entropy(norm(hidden(tokens)), head.weight, targets)

        return WithLoss(lambda tokens: head(norm(hidden(tokens))), loss)

    def step(self, kept: Sequence[str]) -> Callable[[], Tensor]:
        """A train step, given what each block keeps; it returns the loss."""
        run = self.way(kept)
        return partial(train_step, run, self.optimizer, self.tokens, self.targets, DTYPE)

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def _plain_loss(problem: LongProblem) -> float:
    """The loss of the current tokens, from an eager forward pass with SDPA and PyTorch's loss."""
    model = sdpa(problem.model)
    x = model.embedding(problem.tokens)
    for block in model.blocks:
        x = block(x)
    hidden, targets = model.norm(x).flatten(0, -2), problem.targets.flatten()
    parts = zip(hidden.split(CHUNK), targets.split(CHUNK), strict=True)
    losses = [cross_entropy(model.head(x), part).double() * len(part) for x, part in parts]
    return float(torch.stack(losses).sum()) / len(targets)


def gate(
    problem: LongProblem,
    step: Callable[[], Tensor],
    kept: Sequence[str],
    twin: Callable[[], LongProblem],
) -> Gate:
    """Check the code of a step: a smaller twin against float64, and the step's own loss.

    The twin has as wide blocks, the first and the last kind of `kept`, and its loss and all of its
    gradients are compared as `model_accuracy` describes. float64 results of the step itself do not
    fit into a device: its loss is compared with that of an eager forward pass, within the twin's
    limits. More layers widen these limits as much as more tokens narrow them.

    twin: makes the twin, of the shape `TWIN`.
    """
    problem.clear()
    gate_of_twin, limit = _twin_gate(twin(), (kept[0], kept[-1]))
    loss = float(step())
    problem.clear()
    expected = _plain_loss(problem)
    errors = {**gate_of_twin.errors, "full_loss": abs(loss - expected) / abs(expected)}
    return Gate(
        errors,
        {**gate_of_twin.bounds, "full_loss": limit},
        gate_of_twin.pytorch,
        gate_of_twin.where,
    )


def _twin_gate(twin: LongProblem, kept: Sequence[str]) -> tuple[Gate, float]:
    """The gate of a small problem, and the largest difference of two correct losses."""
    model, tokens, targets = twin.model, twin.tokens, twin.targets
    names = [name for name, _ in model.named_parameters()]
    reference = float64_reference(model, tokens, targets)
    pytorch = model_accuracy.pytorch_errors(eager(model, tokens, targets, DTYPE, names), reference)
    allowed = model_accuracy.bounds(pytorch, DTYPE, model, twin.size.num_layers, reference)
    got = {"loss": twin.step(kept)()}
    got |= {name: model.get_parameter(name).grad for name in names}
    result = model_accuracy.gate_of(got, reference, allowed, pytorch)
    return result, allowed["loss"] + pytorch["loss"]
