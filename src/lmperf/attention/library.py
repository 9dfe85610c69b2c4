"""Attention as PyTorch offers it: compiled, by the backends of SDPA, and as FlexAttention.

Each function takes q, k, v [batch, heads, seq_len, d_head] (`compiled` also [batch, seq_len,
d_head]) and `causal`, and returns a tensor of the shape and dtype of q.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from lmperf.attention.reference import attention


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, backend: str | None = None
) -> Tensor:
    """Scaled dot-product attention (SDPA) by one backend, or by the one that PyTorch selects.

    backend: name of a member of `torch.nn.attention.SDPBackend`, such as "CUDNN_ATTENTION".
    Raises ValueError for an unknown backend, RuntimeError for inputs that the backend rejects.
    """
    if backend is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    with sdpa_kernel(_backend(backend)):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def compiled(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Plain attention through torch.compile, specialised to each shape."""
    return _compiled_attention()(q, k, v, causal)


def flex(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """FlexAttention through torch.compile, with a block mask if `causal`."""
    mask = _causal_mask(q.shape[-2], k.shape[-2], q.device.type) if causal else None
    return _compiled_flex()(q, k, v, block_mask=mask)


@cache
def _backend(name: str) -> SDPBackend:
    known = {key: value for key, value in SDPBackend.__members__.items() if key != "ERROR"}
    if name not in known:
        raise ValueError(f"SDPA backend must be one of {', '.join(known)}, got {name!r}")
    return known[name]


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
