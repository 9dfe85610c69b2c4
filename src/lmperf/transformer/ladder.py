"""The ladder: training steps (rungs), each of which adds one technique to the rung below it.

The benchmark `ladder` declares the rungs. The entry of a rung is one of the functions `plain`,
`by_block`, `flash_by_block` and `chunked_loss`: one for each way to run the model, so that a change
of one function concerns only its own rungs. The options of the entry are the fields of `Rung`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lmperf.dtypes import dtype_of
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


@dataclass(frozen=True)
class Rung:
    """How a training step of the ladder is made: dtypes, way to run the model, CUDA graph.

    Attributes:
        way: takes a TransformerLM and returns a callable from tokens to logits.
        dtype: in which the step computes, a value of the dtype axis.
        weights: torch dtype, by name, of weights, gradients and moments.
        graph: whether the step is captured as a CUDA graph.

    Raises:
        ValueError: the dtype is unknown, no optimizer is known for the weights, or the step would
            compute in another dtype than that of its weights without autocast.
    """

    way: Callable[[TransformerLM], Callable[[Tensor], Tensor]]
    dtype: str
    weights: str
    graph: bool

    def __post_init__(self) -> None:
        if self.weights not in _OPTIMIZERS:
            known = ", ".join(_OPTIMIZERS)
            raise ValueError(f"no optimizer for weights {self.weights!r}; known: {known}")
        dtype = dtype_of(self.dtype)
        if dtype.autocast is None and dtype.storage != self.weights:
            raise ValueError(f"weights {self.weights} compute in {self.dtype} only under autocast")

    def prepare(self, model: TransformerLM, learning_rate: float) -> torch.optim.Optimizer:
        """Convert the model's weights in place to the dtype `weights`; returns the optimizer."""
        return _OPTIMIZERS[self.weights](model, learning_rate)

    def step(
        self, model: TransformerLM, optimizer: Any, tokens: Tensor, targets: Tensor, **graph: int
    ) -> Callable[[], Tensor]:
        """A training step on the current contents of tokens and targets; it returns the loss.

        model: changed by the step's way. graph: arguments of `Graphed`.
        """
        made = partial(train_step, self.way(model), optimizer, tokens, targets, self.dtype)
        return Graphed(made, optimizer, **graph) if self.graph else made


def plain(**options: Any) -> Rung:
    """A rung whose training step runs the model in eager mode."""
    return Rung(eager, **options)


def by_block(**options: Any) -> Rung:
    """A rung whose training step runs the model compiled by block."""
    return Rung(compiled_blocks, **options)


def flash_by_block(**options: Any) -> Rung:
    """A rung that compiles the model by block, with the project's FlashAttention-2."""
    return Rung(triton_compiled_blocks, **options)


def chunked_loss(**options: Any) -> Rung:
    """A rung like `flash_by_block`, with head and loss fused a chunk of tokens at a time."""
    return Rung(flash_fused_loss, **options)


def flash_fused_loss(model: TransformerLM) -> WithLoss:
    """`fused_loss` with the project's FlashAttention-2 on CUDA, with plain attention on a CPU."""
    on_cuda = next(model.parameters()).is_cuda
    return fused_loss(triton(model) if on_cuda else model)


def fused_loss(model: TransformerLM) -> WithLoss:
    """The model compiled by block, its head and loss fused, one chunk of tokens at a time."""
    hidden, norm = hidden_by_block(model), compile_static(model.norm)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(norm(hidden(tokens)), model.head.weight, targets)

    return WithLoss(lambda tokens: model.head(norm(hidden(tokens))), loss)


def bfloat16_adamw(model: TransformerLM, learning_rate: float) -> CompiledAdamW:
    """Convert the parameters to bfloat16 in place; returns their compiled AdamW.

    The RoPE tables stay in float32.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return CompiledAdamW(model.parameters(), learning_rate)


# dtype of the weights -> (model, learning rate) -> optimizer
_OPTIMIZERS = {"float32": adamw, "bfloat16": bfloat16_adamw}
