"""The ladder: ways to train, each of which adds one technique to the one below it.

A rung is the numerics of a step, the dtype of the weights (that of their gradients and of AdamW's
moments as well), and a way to run the model; the last is captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lmperf.names import RUNGS
from lmperf.transformer.compiled_adamw import CompiledAdamW
from lmperf.transformer.fused_loss import linear_cross_entropy
from lmperf.transformer.graphed import Graphed
from lmperf.transformer.implementations import (
    compile_static,
    compiled_blocks,
    eager,
    hidden_by_block,
    triton,
    triton_compiled_blocks,
)
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.training import WithLoss, adamw, train_step

BF16 = "bfloat16"


@dataclass(frozen=True)
class Rung:
    """How a step is made.

    Attributes:
        dtype: numerics, a value of the dtype axis; "bfloat16": weights too.
        way: takes a TransformerLM and returns what is called with its tokens.
        graphed: whether the step is one CUDA graph.
    """

    dtype: str
    way: Callable[[TransformerLM], Callable[[Tensor], Tensor]]
    graphed: bool = False

    @property
    def weights(self) -> str:
        """The dtype of weights, gradients and moments."""
        return BF16 if self.dtype == BF16 else "float32"

    def prepare(self, model: TransformerLM, learning_rate: float) -> torch.optim.Optimizer:
        """Give the model the weights of the rung, in place; returns what trains it."""
        if self.weights == "float32":
            return adamw(model, learning_rate)
        return CompiledAdamW(rounded(model).parameters(), learning_rate)

    def step(
        self, model: TransformerLM, optimizer: Any, tokens: Tensor, targets: Tensor, **graph: int
    ) -> Callable[[], Tensor]:
        """A training step on tokens and targets as they are when it is called; gives the loss.

        model: its own from here on. graph: arguments of `Graphed`.
        """
        made = partial(train_step, self.way(model), optimizer, tokens, targets, self.dtype)
        return Graphed(made, optimizer, **graph) if self.graphed else made


def fused_loss(model: TransformerLM) -> WithLoss:
    """Compiled by block; head and loss a chunk of tokens at a time."""
    hidden, norm = hidden_by_block(model), compile_static(model.norm)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(norm(hidden(tokens)), model.head.weight, targets)

    return WithLoss(lambda tokens: model.head(norm(hidden(tokens))), loss)


def flash_fused_loss(model: TransformerLM) -> WithLoss:
    """As `fused_loss`, with the project's FlashAttention-2; with plain attention on a processor,
    which has no such kernel."""
    on_device = next(model.parameters()).is_cuda
    return fused_loss(triton(model) if on_device else model)


def rung(name: str) -> Rung:
    """The rung of a name of `lmperf.names.RUNGS`."""
    return Rung(RUNGS[name], _WAYS.get(name, eager), graphed=name == "graph")


_WAYS = {
    "compiled_blocks": compiled_blocks,
    "flash_attention": triton_compiled_blocks,
    **dict.fromkeys(("fused_loss", "bf16_weights", "graph"), flash_fused_loss),
}


@torch.no_grad()
def rounded(model: TransformerLM) -> TransformerLM:
    """The model with its parameters in bfloat16, in place; the RoPE tables stay in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return model
