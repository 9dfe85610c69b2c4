"""FlashAttention-4 of its authors, package `flash-attn-4`: kernels in CuTe, for Hopper as well.

The kernels are compiled at the first call of each head width and mask, for 9 to 19 s. On Hopper dQ
is wrong for head widths that are not multiples of 32, as version 4.0.0b36 pads them (pull request
2896 of flash-attention): the report's check withholds its times at d_head 16 and 80.
"""

from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Return softmax(q k^T / sqrt(d_head)) v, with FlashAttention-4.

    q, k, v: [batch, heads, seq_len, d_head] in float16 or bfloat16 on a CUDA device, d_head a
    multiple of 8 up to 256; returns the shape and dtype of q. The kernels take
    [batch, seq_len, heads, d_head] with any strides, so nothing is copied.
    """
    return _attention(q, k, v, causal, deterministic=False)


def deterministic_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """As `attention`; the backward pass adds the parts of dQ in a fixed order."""
    return _attention(q, k, v, causal, deterministic=True)


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, deterministic: bool) -> Tensor:
    from flash_attn.cute import flash_attn_func

    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    out, _ = flash_attn_func(q, k, v, causal=causal, deterministic=deterministic)
    return out.transpose(1, 2)
