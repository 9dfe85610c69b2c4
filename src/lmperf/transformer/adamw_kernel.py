"""The Triton kernel of `FusedAdamW`: it reads and writes every element of a parameter once."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 1024
# 2^32 over the golden ratio: it spreads consecutive seeds.
_GOLDEN = tl.constexpr(0x9E3779B9)


def launch(
    tensors: Sequence[Tensor | None],
    scalars: Sequence[Tensor],
    betas: tuple[float, float],
    eps: float,
    scale: Tensor | None = None,
) -> None:
    """Do on CUDA what `fused_adamw.update` does; tensors are contiguous, of any shape.

    tensors: p, g, m, v and copy. scalars: shrink, length, root and seed. scale:
    of the gradient.

    Raises:
        ValueError: the parameter or its gradient is not contiguous.
    """
    p, g = tensors[:2]
    if not (p.is_contiguous() and g.is_contiguous()):
        raise ValueError(f"a parameter {tuple(p.shape)} or its gradient is not contiguous")
    gains = (1 - beta for beta in betas)
    adamw_kernel[(triton.cdiv(p.numel(), _ELEMENTS),)](
        *tensors, *scalars, scale, p.numel(), betas[1], *gains, eps, _ELEMENTS
    )


@triton.jit
def adamw_kernel(
    p,
    g,
    m,
    v,
    copy,
    shrink,
    length,
    root,
    seed,
    scale,
    count,
    beta2,
    gain1,
    gain2,
    eps,
    BLOCK: tl.constexpr,
):
    """Update a block of elements.

    copy, scale: pointers or None. gain1, gain2: 1 - beta1, 1 - beta2.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    gradient = tl.load(g + at, inside).to(tl.float32)
    if scale is not None:
        gradient *= tl.load(scale)
    mean = tl.load(m + at, inside).to(tl.float32)
    square = tl.load(v + at, inside).to(tl.float32)
    weight = tl.load(p + at, inside).to(tl.float32)
    mean += gain1 * (gradient - mean)
    square = beta2 * square + gain2 * gradient * gradient
    spread = tl.sqrt_rn(square) / tl.load(root) + eps
    weight = weight * tl.load(shrink) - tl.load(length) * mean / spread
    tl.store(m + at, mean.to(m.dtype.element_ty), inside)
    if p.dtype.element_ty == tl.bfloat16:
        bits = _random_bits(at, tl.load(seed))
        weight, square = _to_bfloat16(weight, bits), _to_bfloat16(square, bits >> 16)
    tl.store(p + at, weight, inside)
    if copy is not None:
        tl.store(copy + at, weight.to(copy.dtype.element_ty), inside)
    tl.store(v + at, square, inside)


@triton.jit
def _random_bits(at, seed):
    """As `fused_adamw._random_bits`, of elements at some indices."""
    x = at.to(tl.uint32) ^ seed.to(tl.uint32) * _GOLDEN
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def _to_bfloat16(x, bits):
    """As `fused_adamw._to_bfloat16`."""
    carried = x.to(tl.uint32, bitcast=True) + (bits & 0xFFFF)
    return (carried & 0xFFFF0000).to(tl.float32, bitcast=True).to(tl.bfloat16)
