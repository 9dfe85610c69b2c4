"""Train steps: the way to run the model, the optimizer for its weights, and CUDA graphs.

The makers at the end of this module are implementations of the benchmark `end_to_end` that have a
train step and no other phase. Any other way to run the model becomes a train step by
`StepMaker(way)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lmperf.benchmark import Unsupported
from lmperf.dtypes import dtype_of
from lmperf.transformer.copied_linear import with_copies
from lmperf.transformer.fused_adamw import FusedAdamW
from lmperf.transformer.fused_loss import linear_cross_entropy
from lmperf.transformer.graphed import Graphed
from lmperf.transformer.implementations import (
    compile_static,
    compiled_blocks,
    hidden_by_block,
    sdpa_compiled_blocks,
    triton,
)
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.training import (
    ParameterGroups,
    WithLoss,
    adamw,
    gradients,
    sum_in_float32,
    train_step,
)

Way = Callable[[TransformerLM], Callable[[Tensor], Tensor]]
# (model, learning rate, groups of parameters or None, greatest norm of the gradients or None) ->
# optimizer; may convert weights and layers of the model in place.
Prepare = Callable[..., torch.optim.Optimizer]


@dataclass(frozen=True)
class StepMaker:
    """How a train step is made.

    Attributes:
        way: takes a TransformerLM and returns a callable from tokens to logits.
        optimizers: a value of the dtype axis, or the dtype of the weights of those that have no
            entry of their own -> how to prepare the model and its optimizer.
        capture: captures the step as a CUDA graph: (forward and backward pass, optimizer, memory
            pool) -> step; None: no graph.
        micro_batch: sequences of a forward and backward pass; their gradients are added up before
            the optimizer's step. None: the whole batch at once.
    """

    way: Way
    optimizers: Mapping[str, Prepare] = field(default_factory=lambda: {"float32": adamw})
    capture: Callable[..., Callable[[], Tensor]] | None = None
    micro_batch: int | None = None

    def prepare(self, dtype: str) -> Prepare:
        """How to prepare the model and its optimizer for a dtype.

        Raises:
            Unsupported: the step has no optimizer for weights of this dtype.
        """
        weights = dtype_of(dtype).storage
        prepare = self.optimizers.get(dtype) or self.optimizers.get(weights)
        if prepare is None:
            raise Unsupported(f"no optimizer for {weights} weights; known: {[*self.optimizers]}")
        return prepare

    def step(
        self,
        model: TransformerLM,
        optimizer: Any,
        tokens: Tensor,
        targets: Tensor,
        dtype: str,
        pool: Any = None,
    ) -> Callable[[], Tensor]:
        """A train step on the current contents of tokens and targets; it returns the loss.

        model: changed by the way. tokens, targets: as `training.gradients`. pool: of CUDA graphs;
            see `Graphed`.
        """
        if self.micro_batch:
            shape = -1, self.micro_batch, tokens.shape[-1]
            tokens, targets = tokens.view(shape), targets.view(shape)
        inputs = self.way(model), optimizer, tokens, targets, dtype
        if self.capture is None:
            return partial(train_step, *inputs)
        return self.capture(partial(gradients, *inputs), optimizer, pool)


def step_maker(implementation: StepMaker | Way) -> StepMaker:
    """The maker itself, or a maker of steps that run the model in the given way."""
    return implementation if isinstance(implementation, StepMaker) else StepMaker(implementation)


def flash_fused_loss(model: TransformerLM) -> WithLoss:
    """`fused_loss` with the project's FlashAttention-2 on CUDA, with plain attention on a CPU."""
    on_cuda = next(model.parameters()).is_cuda
    return fused_loss(triton(model) if on_cuda else model)


def flash_fused_blocks(model: TransformerLM) -> WithLoss:
    """`flash_fused_loss` with fused kernels in the blocks on CUDA; on a CPU the same as it."""
    return fused_loss(_with_our_kernels(model))


def flash_fused_blocks_stored_logits(model: TransformerLM) -> WithLoss:
    """`flash_fused_blocks` with one loss of all tokens at once, whose logits are stored."""
    return compiled_blocks(_with_our_kernels(model))


def flash_float8_blocks(model: TransformerLM) -> WithLoss:
    """`flash_fused_blocks` with float8 matmuls in the blocks; the model has `Float8Weights`.

    The first loss, and that after a load of weights, sets all scales by a pass in bf16.
    """
    from lmperf.transformer.float8_blocks import with_float8_blocks
    from lmperf.transformer.float8_linear import measure_scales

    on_cuda = next(model.parameters()).is_cuda
    run = fused_loss(with_float8_blocks(triton(model) if on_cuda else model))
    plain = _with_our_kernels(model)
    loss_in_bf16 = fused_loss(plain).loss

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        if not model.float8.are_set:
            measure_scales(plain, model.parameters(), partial(loss_in_bf16, tokens, targets))
        return run.loss(tokens, targets)

    return replace(run, loss=loss)


def _with_our_kernels(model: TransformerLM) -> TransformerLM:
    """On CUDA the model with the project's attention and fused blocks, else the model."""
    if not next(model.parameters()).is_cuda:
        return model
    from lmperf.transformer.fused_blocks import with_fused_blocks

    return with_fused_blocks(triton(model))


def fused_loss(model: TransformerLM) -> WithLoss:
    """The model compiled by block, its head and loss fused, one chunk of tokens at a time."""
    hidden, norm = hidden_by_block(model), compile_static(model.norm)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(norm(hidden(tokens)), model.head.weight, targets)

    return WithLoss(lambda tokens: model.head(norm(hidden(tokens))), loss)


def bfloat16_adamw(
    model: TransformerLM,
    learning_rate: float,
    groups: ParameterGroups = None,
    max_norm: float | None = None,
) -> FusedAdamW:
    """Convert the parameters to bfloat16 in place; returns their fused AdamW.

    The RoPE tables stay in float32. groups: see `ParameterGroups`. max_norm: see `FusedAdamW`.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return FusedAdamW(groups or model.parameters(), learning_rate, max_norm=max_norm)


def float8_adamw(
    model: TransformerLM,
    learning_rate: float,
    groups: ParameterGroups = None,
    max_norm: float | None = None,
) -> FusedAdamW:
    """`bfloat16_adamw`, and float8 weights of the blocks' linear layers, which its steps write.

    Move the model to its device before. groups, max_norm: as `bfloat16_adamw`.
    """
    from lmperf.transformer.float8_linear import Float8Weights

    optimizer = bfloat16_adamw(model, learning_rate, groups, max_norm)
    Float8Weights(model).follow(optimizer)
    return optimizer


def copying_adamw(
    model: TransformerLM,
    learning_rate: float,
    groups: ParameterGroups = None,
    max_norm: float | None = None,
    sums: bool = False,
) -> FusedAdamW:
    """Give the blocks' linear layers bf16 copies of their float32 weights, in place.

    Returns their fused AdamW, which writes the copies. Weights and moments stay float32;
    gradients of copied weights are bf16. Move the model to its device before.

    groups: see `ParameterGroups`. max_norm: see `FusedAdamW`. sums: all gradients are float32, so
    that those of micro-batches can be added up.
    """
    copies = with_copies(model)
    optimizer = FusedAdamW(groups or model.parameters(), learning_rate, copies, max_norm)
    if sums:
        sum_in_float32(model)
    return optimizer


_OPTIMIZERS = {"float32": adamw, "bfloat16": bfloat16_adamw}
FUSED_LOSS = StepMaker(flash_fused_loss, _OPTIMIZERS)
FUSED_BLOCKS = StepMaker(flash_fused_blocks, _OPTIMIZERS)
# Graphs with and without kernels of ours, and with and without copies: what each part gains.
SDPA_GRAPH = StepMaker(sdpa_compiled_blocks, _OPTIMIZERS, capture=Graphed)
SDPA_COPIES_GRAPH = replace(SDPA_GRAPH, optimizers={"autocast_bfloat16": copying_adamw})
FUSED_GRAPH = StepMaker(flash_fused_blocks, capture=Graphed)
GRAPH = StepMaker(
    flash_fused_blocks, {**_OPTIMIZERS, "autocast_bfloat16": copying_adamw}, capture=Graphed
)
FP8_GRAPH = StepMaker(flash_float8_blocks, {"bfloat16": float8_adamw}, capture=Graphed)
# What the loss in chunks costs, beside `GRAPH`.
STORED_LOGITS_GRAPH = replace(GRAPH, way=flash_fused_blocks_stored_logits)
# What clipping and adding up the gradients of micro-batches cost, beside `GRAPH`.
CLIPPED_GRAPH = replace(
    GRAPH, optimizers={"autocast_bfloat16": partial(copying_adamw, max_norm=1.0)}
)
ACCUMULATED_GRAPH = replace(
    GRAPH, optimizers={"autocast_bfloat16": partial(copying_adamw, sums=True)}, micro_batch=4
)
