"""The Triton kernel of `FusedAdamW`: it reads and writes every element of a parameter once.

A launch updates many parameters. With a launch for each, the device would start a kernel and wait
for its last blocks 219 times in a train step of size large.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 1024
# Parameters of a launch. Their addresses are its arguments, so that a CUDA graph keeps them. Each
# block selects one of them by comparing: with 32 that takes longer than the rest of its work.
_TENSORS = 16
# 2^32 over the golden ratio: it spreads consecutive seeds.
_GOLDEN = tl.constexpr(0x9E3779B9)


def launch(
    tensors: Sequence[tuple[Tensor | None, ...]],
    scalars: Sequence[Tensor],
    betas: tuple[float, float],
    eps: float,
    scale: Tensor | None = None,
) -> None:
    """Do on CUDA what `fused_adamw.update` does, to several parameters.

    tensors: p, g, m, v and copy of each parameter, contiguous, of any shape. scalars: shrink,
    length, root and seed. scale: of the gradients.

    Raises:
        ValueError: a parameter or its gradient is not contiguous.
    """
    alike: dict[tuple, list[tuple[Tensor | None, ...]]] = {}
    for each in tensors:
        p, g = each[:2]
        if not (p.is_contiguous() and g.is_contiguous()):
            raise ValueError(f"a parameter {tuple(p.shape)} or its gradient is not contiguous")
        alike.setdefault(tuple(x if x is None else x.dtype for x in each), []).append(each)
    options = *scalars, scale, betas[1], *(1 - beta for beta in betas), eps
    for of_dtypes in alike.values():
        for first in range(0, len(of_dtypes), _TENSORS):
            _launch(of_dtypes[first : first + _TENSORS], options)


def _launch(tensors: list[tuple[Tensor | None, ...]], options: tuple) -> None:
    """Launch the kernel for up to `_TENSORS` parameters of equal dtypes."""
    blocks = sum(triton.cdiv(p.numel(), _ELEMENTS) for p, *_ in tensors)
    # The same number in every launch, so that Triton compiles once for equal dtypes and alignments;
    # no block reaches the others.
    tensors = tensors + tensors[-1:] * (_TENSORS - len(tensors))
    *columns, copies = zip(*tensors, strict=True)
    copies = None if copies[0] is None else copies
    counts = tuple(p.numel() for p in columns[0])
    adamw_kernel[(blocks,)](*columns, copies, counts, *options, _ELEMENTS)


@triton.jit
def adamw_kernel(
    parameters,
    gradients,
    means,
    squares,
    copies,
    counts,
    shrink,
    length,
    root,
    seed,
    scale,
    beta2,
    gain1,
    gain2,
    eps,
    BLOCK: tl.constexpr,
):
    """Update a block of elements of one of several parameters.

    parameters ... copies: tuples of pointers; copies, scale: or None. counts: elements of each.
    gain1, gain2: 1 - beta1, 1 - beta2.
    """
    block = tl.program_id(0)
    p, g, m, v, count = parameters[0], gradients[0], means[0], squares[0], counts[0]
    if copies is not None:
        copy = copies[0]
    first, start = 0, 0
    for number in tl.static_range(1, len(parameters)):
        start += tl.cdiv(counts[number - 1], BLOCK)
        here = block >= start
        p = tl.where(here, parameters[number], p)
        g = tl.where(here, gradients[number], g)
        m = tl.where(here, means[number], m)
        v = tl.where(here, squares[number], v)
        if copies is not None:
            copy = tl.where(here, copies[number], copy)
        count, first = tl.where(here, counts[number], count), tl.where(here, start, first)
    at = (block - first).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
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
    if copies is not None:
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
