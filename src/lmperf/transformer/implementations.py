"""Ways to run a model: functions from a TransformerLM to a callable from tokens to logits.

Each function combines an attention (plain, SDPA, the project's Triton kernel) with an execution
mode (eager, compiled by block, compiled whole). Functions that compile the model compile the loss
as well: see `WithLoss`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lmperf.transformer.model import Attention, TransformerLM, cross_entropy, twin_of
from lmperf.transformer.training import WithLoss


def eager(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """Run the model in eager mode, one kernel per operator."""
    return model


def sdpa(model: TransformerLM) -> TransformerLM:
    """Run in eager mode with `scaled_dot_product_attention`; PyTorch selects the backend."""
    return with_attention(model, _sdpa)


def triton(model: TransformerLM) -> TransformerLM:
    """Run the model in eager mode with the project's FlashAttention-2."""
    from lmperf.attention.triton import flash_attention

    return with_attention(model, flash_attention)


def compiled(model: TransformerLM) -> WithLoss:
    """Compile the whole model as one graph; compile time grows with the number of layers."""
    return _with_compiled_loss(compile_static(model))


def compiled_blocks(model: TransformerLM) -> WithLoss:
    """Compile one block and reuse it for every layer, so that compile time is independent of depth.

    The final norm and the head are one more graph, the loss another.
    """
    hidden, head = hidden_by_block(model), compile_static(lambda x: model.head(model.norm(x)))
    return _with_compiled_loss(lambda tokens: head(hidden(tokens)))


def sdpa_compiled(model: TransformerLM) -> WithLoss:
    """Compile the whole model, with `scaled_dot_product_attention`."""
    return compiled(sdpa(model))


def sdpa_compiled_blocks(model: TransformerLM) -> WithLoss:
    """Compile by block, with `scaled_dot_product_attention`."""
    return compiled_blocks(sdpa(model))


def triton_compiled(model: TransformerLM) -> WithLoss:
    """Compile the whole model, with the project's FlashAttention-2."""
    return compiled(triton(model))


def triton_compiled_blocks(model: TransformerLM) -> WithLoss:
    """Compile by block, with the project's FlashAttention-2."""
    return compiled_blocks(triton(model))


def hidden_by_block(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """Compile the blocks, which share one graph; returns tokens -> hidden states.

    The callable takes tokens [batch, seq_len] int64 and returns the output of the last block,
    [batch, seq_len, d_model].
    """
    blocks = [compile_static(block) for block in model.blocks]

    def hidden(tokens: Tensor) -> Tensor:
        x = model.embedding(tokens)
        for block in blocks:
            x = block(x)
        return x

    return hidden


def compile_static(function: Callable) -> Callable:
    """Compile a module as one graph with static shapes."""
    return torch.compile(function, dynamic=False, fullgraph=True)


def _with_compiled_loss(logits: Callable[[Tensor], Tensor]) -> WithLoss:
    """Pair a model with a loss that is compiled as a separate graph.

    The logits are stored in memory in any case, so the separate graph costs nothing, and the gate
    checks the same logits that are timed.
    """
    return WithLoss(logits, criterion=compile_static(cross_entropy))


def with_attention(model: TransformerLM, attention: Attention) -> TransformerLM:
    """A copy of the model with another attention; parameters and buffers are shared."""
    twin = twin_of(model)
    for block in twin.blocks:
        block.attention.attention = attention
    return twin


def _sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
