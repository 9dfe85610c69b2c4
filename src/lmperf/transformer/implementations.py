"""Ways to run a model: each takes a TransformerLM and returns what is called with its tokens.

An attention (plain, SDPA, the project's own) times a way to run it (eager, compiled by block,
compiled whole). What is compiled has a compiled loss, too: see `WithLoss`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lmperf.transformer.model import Attention, TransformerLM, cross_entropy, twin_of
from lmperf.transformer.training import WithLoss


def eager(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """As it is written, one kernel an operator."""
    return model


def sdpa(model: TransformerLM) -> TransformerLM:
    """Eager, with the attention that PyTorch's dispatcher chooses."""
    return with_attention(model, _sdpa)


def triton(model: TransformerLM) -> TransformerLM:
    """Eager, with the project's FlashAttention-2."""
    from lmperf.attention.triton import flash_attention

    return with_attention(model, flash_attention)


def compiled(model: TransformerLM) -> WithLoss:
    """The whole model as one graph; compiling takes longer with every layer."""
    return _with_compiled_loss(compile_static(model))


def compiled_blocks(model: TransformerLM) -> WithLoss:
    """One block compiled, and reused by every layer: the graph does not grow with depth. Norm and
    head are compiled as one more graph, the loss as another."""
    hidden, head = hidden_by_block(model), compile_static(lambda x: model.head(model.norm(x)))
    return _with_compiled_loss(lambda tokens: head(hidden(tokens)))


def sdpa_compiled(model: TransformerLM) -> WithLoss:
    """Compiled whole, with the attention that PyTorch's dispatcher chooses."""
    return compiled(sdpa(model))


def sdpa_compiled_blocks(model: TransformerLM) -> WithLoss:
    """Compiled by block, with the attention that PyTorch's dispatcher chooses."""
    return compiled_blocks(sdpa(model))


def triton_compiled(model: TransformerLM) -> WithLoss:
    """Compiled whole, with the project's FlashAttention-2 inside."""
    return compiled(triton(model))


def triton_compiled_blocks(model: TransformerLM) -> WithLoss:
    """Compiled by block, with the project's FlashAttention-2 inside."""
    return compiled_blocks(triton(model))


def hidden_by_block(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """Tokens [batch, seq_len] -> what leaves the last block, [batch, seq_len, d_model]; each block
    is compiled, all to the same code."""
    blocks = [compile_static(block) for block in model.blocks]

    def hidden(tokens: Tensor) -> Tensor:
        x = model.embedding(tokens)
        for block in blocks:
            x = block(x)
        return x

    return hidden


def compile_static(function: Callable) -> Callable:
    """Compiled for the shapes that it is called with, as one graph."""
    return torch.compile(function, dynamic=False, fullgraph=True)


def _with_compiled_loss(logits: Callable[[Tensor], Tensor]) -> WithLoss:
    """The logits are an array in memory whoever takes their loss, so that a graph of its own costs
    nothing, and those that are gated are those that are timed."""
    loss = compile_static(cross_entropy)
    return WithLoss(logits, lambda tokens, targets: loss(logits(tokens), targets))


def with_attention(model: TransformerLM, attention: Attention) -> TransformerLM:
    """The same model, parameters and buffers shared, with another attention."""
    twin = twin_of(model)
    for block in twin.blocks:
        block.attention.attention = attention
    return twin


def _sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
