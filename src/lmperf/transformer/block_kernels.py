"""Triton kernels of a block's memory-bound operations, where torch.compile moves more bytes.

torch.compile computes the two halves of a gradient of SwiGLU or RoPE in turn, each from all of the
inputs, so that it reads them twice; it copies the gradients of queries, keys and values into one
tensor; and it reads the input of RMSNorm again for the gradient of the weight, and that of the
residual stream again to cast it for the matmuls. Each kernel here reads and writes every element
once. All compute in float32. What was tried and is no faster: docs/kernels.md.

The kernels whose results a matmul reads can also store them in float8: `low`, with the `cell` that
`float8_kernels` describes. Both are None where no matmul reads float8.

Source: Liger Kernel (Hsu et al. 2024, arXiv 2410.10989) fuses the same operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.transformer.float8_kernels import raise_greatest, store_float8

_ELEMENTS = 1024
# Programs of the gradient of RMSNorm, for narrow and for wide rows: each sums the weight's gradient
# over its rows, and loads the next two rows into shared memory while it works on one.
_PROGRAMS, _PROGRAMS_OF_WIDE = 396, 264
_STAGES = 3
# Elements of a wide row, as a power of two.
_WIDE = 4096
# Columns of a program that adds up these sums.
_COLUMNS = 16


@triton.jit
def swiglu_kernel(gate_up, out, low, cell, width, BLOCK: tl.constexpr):
    """out = silu(gate) * up, for a row and a block of columns."""
    row, columns = _place(BLOCK)
    inside = columns < width
    at = gate_up + row * 2 * width + columns
    gate = tl.load(at, inside).to(tl.float32)
    up = tl.load(at + width, inside).to(tl.float32)
    product = gate * tl.sigmoid(gate) * up
    tl.store(out + row * width + columns, product.to(out.dtype.element_ty), inside)
    if low is not None:
        store_float8(low + row * width + columns, product, tl.load(cell + 1), inside)
        raise_greatest(cell, tl.where(inside, product, 0.0))


@triton.jit
def swiglu_gradient_kernel(gate_up, grad_out, grad, low, cell, width, BLOCK: tl.constexpr):
    """Gradients of gate and up, for a row and a block of columns."""
    row, columns = _place(BLOCK)
    inside = columns < width
    at = row * 2 * width + columns
    gate = tl.load(gate_up + at, inside).to(tl.float32)
    up = tl.load(gate_up + at + width, inside).to(tl.float32)
    dout = tl.load(grad_out + row * width + columns, inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    dgate = dout * up * sigmoid * (1 + gate * (1 - sigmoid))
    dup = dout * gate * sigmoid
    tl.store(grad + at, dgate.to(grad.dtype.element_ty), inside)
    tl.store(grad + at + width, dup.to(grad.dtype.element_ty), inside)
    if low is not None:
        scale = tl.load(cell + 1)
        store_float8(low + at, dgate, scale, inside)
        store_float8(low + at + width, dup, scale, inside)
        greatest = tl.maximum(tl.abs(dgate), tl.abs(dup))
        raise_greatest(cell, tl.where(inside, greatest, 0.0))


@triton.jit
def _place(BLOCK: tl.constexpr):
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return tl.program_id(0).to(tl.int64), columns


@triton.jit
def rope_kernel(
    queries,
    keys,
    values,
    target,
    low,
    cell,
    cos_table,
    sin_table,
    seq_len,
    source_batch,
    source_token,
    source_head,
    target_part,
    target_batch,
    target_token,
    sign,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate a token's queries or keys by sign * angle, or copy its values, for all heads.

    target, low: parts for queries, keys and values, each of contiguous heads.
    """
    part = tl.program_id(1)
    source = tl.where(part == 0, queries, tl.where(part == 1, keys, values))
    token = tl.program_id(0) % seq_len
    batch = (tl.program_id(0) // seq_len).to(tl.int64)
    source += batch * source_batch + token.to(tl.int64) * source_token
    to = part.to(tl.int64) * target_part
    to += batch * target_batch + token.to(tl.int64) * target_token
    pair = tl.arange(0, BLOCK)
    inside = pair < HEADS * HALF
    head, channel = pair // HALF, pair % HALF
    at = source + head * source_head + channel
    first, second = tl.load(at, inside), tl.load(at + HALF, inside)
    if part < 2:
        x, y = first.to(tl.float32), second.to(tl.float32)
        cos = tl.load(cos_table + token * HALF + channel, inside)
        sin = tl.load(sin_table + token * HALF + channel, inside) * sign
        first = (x * cos - y * sin).to(target.dtype.element_ty)
        second = (x * sin + y * cos).to(target.dtype.element_ty)
    to += head * 2 * HALF + channel
    tl.store(target + to, first, inside)
    tl.store(target + to + HALF, second, inside)
    if low is not None:
        scale, x, y = tl.load(cell + 1), first.to(tl.float32), second.to(tl.float32)
        store_float8(low + to, x, scale, inside)
        store_float8(low + to + HALF, y, scale, inside)
        raise_greatest(cell, tl.where(inside, tl.maximum(tl.abs(x), tl.abs(y)), 0.0))


@triton.jit
def added_rms_norm_kernel(
    x, branch, weight, total, normed, low, cell, width, eps, BLOCK: tl.constexpr
):
    """total = x + branch, and its RMSNorm, for a row."""
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = tl.program_id(0).to(tl.int64) * width + columns
    value = tl.load(x + at, inside, other=0.0).to(tl.float32)
    value += tl.load(branch + at, inside, other=0.0).to(tl.float32)
    tl.store(total + at, value.to(total.dtype.element_ty), inside)
    scale = tl.load(weight + columns, inside, other=0.0).to(tl.float32)
    value *= tl.rsqrt(tl.sum(value * value) / width + eps) * scale
    tl.store(normed + at, value.to(normed.dtype.element_ty), inside)
    if low is not None:
        store_float8(low + at, value, tl.load(cell + 1), inside)
        raise_greatest(cell, value)


@triton.jit
def rms_norm_gradient_kernel(
    x,
    weight,
    grad_normed,
    grad_residual,
    grad_x,
    grad_branch,
    low,
    cell,
    parts,
    rows,
    width,
    eps,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient of x for every n-th row, and this program's part of that of the weight.

    grad_branch: the gradient of x in another dtype, or None. parts: [programs, width], float32.
    """
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    scale = tl.load(weight + columns, inside, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    if low is not None:
        low_scale, greatest = tl.load(cell + 1), tl.zeros([BLOCK], tl.float32)
    at = tl.program_id(0).to(tl.int64) * width + columns
    for _ in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        value = tl.load(x + at, inside, other=0.0).to(tl.float32)
        dy = tl.load(grad_normed + at, inside, other=0.0).to(tl.float32)
        added = tl.load(grad_residual + at, inside, other=0.0).to(tl.float32)
        scaled = dy * scale
        squares, products = tl.reduce((value * value, scaled * value), 0, _add_pairs)
        inverse = tl.rsqrt(squares / width + eps)
        unit = value * inverse
        total += dy * unit
        gradient = (scaled - unit * (products * inverse / width)) * inverse + added
        tl.store(grad_x + at, gradient.to(grad_x.dtype.element_ty), inside)
        if grad_branch is not None:
            tl.store(grad_branch + at, gradient.to(grad_branch.dtype.element_ty), inside)
        if low is not None:
            store_float8(low + at, gradient, low_scale, inside)
            greatest = tl.maximum(greatest, tl.abs(gradient))
        at += tl.num_programs(0) * width
    tl.store(parts + tl.program_id(0) * width + columns, total, inside)
    if low is not None:
        raise_greatest(cell, greatest)


@triton.jit
def _add_pairs(first, second, other_first, other_second):
    return first + other_first, second + other_second


@triton.jit
def rms_norm_sum_kernel(parts, out, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the rows of parts, [count, width], for a block of columns."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < count)[:, None] & (columns < width)[None, :]
        total += tl.load(parts + row[:, None] * width + columns[None, :], inside, other=0.0)
    tl.store(out + columns, tl.sum(total, 0).to(out.dtype.element_ty), columns < width)


def swiglu(gate_up: Tensor, low: Tensor | None = None, cell: Tensor | None = None) -> Tensor:
    """silu(gate) * up; gate_up: [..., 2 width], contiguous. low: of the shape of the result."""
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    grid = out.numel() // width, triton.cdiv(width, _ELEMENTS)
    swiglu_kernel[grid](gate_up, out, low, cell, width, _ELEMENTS)
    return out


def swiglu_gradient(
    gate_up: Tensor, grad_out: Tensor, low: Tensor | None = None, cell: Tensor | None = None
) -> Tensor:
    """The gradient of gate_up, given that of `swiglu(gate_up)`; all contiguous."""
    grad = torch.empty_like(gate_up)
    width = gate_up.shape[-1] // 2
    grid = grad_out.numel() // width, triton.cdiv(width, _ELEMENTS)
    swiglu_gradient_kernel[grid](gate_up, grad_out, grad, low, cell, width, _ELEMENTS)
    return grad


def rope(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Split qkv into rotated queries, rotated keys and values: [3, batch, seq_len, heads, d_head].

    qkv: [batch, seq_len, 3, heads, d_head], contiguous; cos, sin: [context, d_head / 2], float32.
    """
    batch, seq_len, _, heads, d_head = qkv.shape
    parts = qkv.new_empty(3, batch, seq_len, heads, d_head)
    _rope(qkv.unbind(2), parts, None, None, cos, sin, 1.0)
    return parts


def rope_gradient(
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    cos: Tensor,
    sin: Tensor,
    low: Tensor | None = None,
    cell: Tensor | None = None,
) -> Tensor:
    """The gradient of qkv, given those of the parts of `rope`, of any strides.

    low: of the shape of the result, contiguous.
    """
    batch, seq_len, heads, d_head = dq.shape
    grad = dq.new_empty(batch, seq_len, 3, heads, d_head)
    if not (dq.stride() == dk.stride() == dv.stride() and dq.stride(-1) == 1):
        dq, dk, dv = (part.contiguous() for part in (dq, dk, dv))
    _rope((dq, dk, dv), grad.movedim(2, 0), low, cell, cos, sin, -1.0)
    return grad


def _rope(
    sources: Sequence[Tensor],
    target: Tensor,
    low: Tensor | None,
    cell: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    sign: float,
) -> None:
    """sources: three of equal strides; target: [3, batch, seq_len, heads, d_head].

    low: of the memory layout of target.
    """
    batch, seq_len, heads, d_head = sources[0].shape
    block = triton.next_power_of_2(heads * d_head // 2)
    strides = *sources[0].stride()[:3], *target.stride()[:3]
    rope_kernel[(batch * seq_len, 3)](
        *(*sources, target, low, cell, cos, sin, seq_len, *strides, sign, heads, d_head // 2, block)
    )


def added_rms_norm(
    x: Tensor,
    branch: Tensor,
    weight: Tensor,
    eps: float,
    low: Tensor | None = None,
    cell: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x + branch in the dtype of x, and its RMSNorm in that of branch.

    x, branch, low: [..., width], contiguous.
    """
    width = x.shape[-1]
    total, normed = torch.empty_like(x), torch.empty_like(branch)
    block = triton.next_power_of_2(width)
    added_rms_norm_kernel[(x.numel() // width,)](
        x, branch, weight, total, normed, low, cell, width, eps, block, num_warps=_warps(block)
    )
    return total, normed


def _warps(block: int) -> int:
    """Warps of a program that works on rows of up to `block` elements."""
    return 8 if block >= _WIDE else 4


def rms_norm_gradient(
    x: Tensor,
    weight: Tensor,
    grad_normed: Tensor,
    grad_residual: Tensor,
    eps: float,
    branch: torch.dtype,
    low: Tensor | None = None,
    cell: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of x, the same in the dtype `branch`, and the gradient of the weight.

    The second is empty if x has that dtype. grad_normed: the gradient of RMSNorm's output;
    grad_residual: added to the gradient of x. All, and low, are [..., width] and contiguous.
    """
    width = x.shape[-1]
    rows = x.numel() // width
    block = triton.next_power_of_2(width)
    # With float8 and 16 elements a thread, Triton would compute a row in two layouts, in twice as
    # many registers. A wide program then has a multiprocessor for itself.
    warps, wide = _warps(block), _PROGRAMS_OF_WIDE
    if low is not None:
        warps, wide = 2 * warps, wide // 2
    programs = min(rows, wide if block >= _WIDE else _PROGRAMS)
    grad, parts = torch.empty_like(x), x.new_empty(programs, width, dtype=torch.float32)
    narrow = None if branch == x.dtype else torch.empty_like(x, dtype=branch)
    rms_norm_gradient_kernel[(programs,)](
        *(x, weight, grad_normed, grad_residual, grad, narrow, low, cell, parts, rows, width),
        *(eps, block, _STAGES),
        num_warps=warps,
    )
    grad_weight = torch.empty_like(weight)
    rms_norm_sum_kernel[(triton.cdiv(width, _COLUMNS),)](
        parts, grad_weight, programs, width, 4 * _COLUMNS, _COLUMNS
    )
    return grad, x.new_empty(0, dtype=branch) if narrow is None else narrow, grad_weight
