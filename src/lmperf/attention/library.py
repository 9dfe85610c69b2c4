"""Attention as PyTorch offers it: compiled, by each backend of SDPA, and as FlexAttention.

Each function takes q, k, v [batch, heads, seq_len, d_head] (`compiled` also [batch, seq_len,
d_head]) and `causal`, and returns the shape and dtype of q. `sdpa` leaves the choice
of a backend to PyTorch; one that is named raises RuntimeError where it cannot run.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from lmperf.attention.reference import attention

MOST_SCORES = 1 << 28


def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """SDPA with the backend that PyTorch chooses."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sdpa_cudnn(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """SDPA by cuDNN's fused attention."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sdpa_flash(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """SDPA by the FlashAttention-2 that PyTorch ships."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sdpa_efficient(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """SDPA by the memory-efficient kernel of xFormers."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def compiled(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Plain attention through torch.compile, for this shape alone."""
    return _compiled_attention()(q, k, v, causal)


def flex(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """FlexAttention, compiled, with a block mask where causal."""
    mask = _causal_mask(q.shape[-2], k.shape[-2], q.device.type) if causal else None
    return _compiled_flex()(q, k, v, block_mask=mask)


def by_pytorch(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """What PyTorch's own error is measured on: plain attention where the scores fit, else SDPA."""
    scores = q[..., 0].numel() * k.shape[-2]
    return (attention if scores <= MOST_SCORES else sdpa)(q, k, v, causal=causal)


@cache
def _compiled_attention():
    return torch.compile(attention, dynamic=False, fullgraph=True)


@cache
def _compiled_flex():
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


@cache
def _causal_mask(queries: int, keys: int, device: str) -> BlockMask:
    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    return create_block_mask(sees, None, None, queries, keys, device=device)
