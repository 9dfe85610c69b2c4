"""Ways to run a model: each takes a TransformerLM and returns what is called with its tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lmperf.transformer.model import Attention, TransformerLM, twin_of


def eager(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """As it is written, one kernel an operator."""
    return model


def sdpa(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """Eager, with the attention that PyTorch's dispatcher chooses."""
    return with_attention(model, _sdpa)


def triton(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """Eager, with the project's FlashAttention-2."""
    from lmperf.attention.triton import flash_attention

    return with_attention(model, flash_attention)


def triton_compiled_blocks(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """One block compiled and reused, with the project's FlashAttention-2 inside."""
    return compiled_blocks(triton(model))


def compiled(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """The whole model as one graph; compiling takes longer with every layer."""
    return torch.compile(model, dynamic=False, fullgraph=True)


def compiled_blocks(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """One block compiled, and reused by every layer: the graph does not grow with depth."""
    blocks = [torch.compile(block, dynamic=False, fullgraph=True) for block in model.blocks]

    def forward(tokens: Tensor) -> Tensor:
        x = model.embedding(tokens)
        for block in blocks:
            x = block(x)
        return model.head(model.norm(x))

    return forward


def with_attention(model: TransformerLM, attention: Attention) -> TransformerLM:
    """The same model, parameters and buffers shared, with another attention."""
    twin = twin_of(model)
    for block in twin.blocks:
        block.attention.attention = attention
    return twin


def _sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
