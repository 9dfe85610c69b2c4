"""FlashAttention-2 of its authors (Dao 2023, arXiv:2307.08691), package `flash-attn`."""

from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Return softmax(q k^T / sqrt(d_head)) v, with FlashAttention-2.

    q, k, v: [batch, heads, seq_len, d_head] in float16 or bfloat16 on a CUDA device, d_head at most
    256; returns the shape and dtype of q. The kernels take [batch, seq_len, heads, d_head] with any
    strides, so nothing is copied.
    """
    from flash_attn import flash_attn_func

    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    return flash_attn_func(q, k, v, causal=causal).transpose(1, 2)
