"""PyTorch's own attention; a failed gate (correctness check) reports its error for comparison."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from lmperf.attention.reference import attention

MOST_SCORES = 1 << 28


def pytorch_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Plain attention up to MOST_SCORES scores, else SDPA with the backend that PyTorch selects.

    q: [..., n, d]; k, v: [..., m, d]. Returns [..., n, d] in the dtype of q.
    """
    if q[..., 0].numel() * k.shape[-2] <= MOST_SCORES:
        return attention(q, k, v, causal=causal)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
