"""Triton kernels of a block's memory-bound operations, where torch.compile moves more bytes.

torch.compile computes the two halves of a gradient of SwiGLU or RoPE in turn, each from all of the
inputs, so that it reads them twice; it copies the gradients of queries, keys and values into one
tensor; and it reads the input of RMSNorm again for the gradient of the weight. Each kernel here
reads and writes every element once. All compute in float32.

Source: Liger Kernel (Hsu et al. 2024, arXiv 2410.10989) fuses the same operations.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 1024
# Programs of the RMSNorm kernel: each sums the weight's gradient over its rows.
PROGRAMS = 528


@triton.jit
def swiglu_kernel(gate_up, out, width, BLOCK: tl.constexpr):
    """out = silu(gate) * up, for a row and a block of columns."""
    row, columns = _place(BLOCK)
    inside = columns < width
    at = gate_up + row * 2 * width + columns
    gate = tl.load(at, inside).to(tl.float32)
    up = tl.load(at + width, inside).to(tl.float32)
    product = gate * tl.sigmoid(gate) * up
    tl.store(out + row * width + columns, product.to(out.dtype.element_ty), inside)


@triton.jit
def swiglu_gradient_kernel(gate_up, grad_out, grad, width, BLOCK: tl.constexpr):
    """Gradients of gate and up, for a row and a block of columns."""
    row, columns = _place(BLOCK)
    inside = columns < width
    at = row * 2 * width + columns
    gate = tl.load(gate_up + at, inside).to(tl.float32)
    up = tl.load(gate_up + at + width, inside).to(tl.float32)
    dout = tl.load(grad_out + row * width + columns, inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    dgate = dout * up * sigmoid * (1 + gate * (1 - sigmoid))
    tl.store(grad + at, dgate.to(grad.dtype.element_ty), inside)
    tl.store(grad + at + width, (dout * gate * sigmoid).to(grad.dtype.element_ty), inside)


@triton.jit
def _place(BLOCK: tl.constexpr):
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return tl.program_id(0).to(tl.int64), columns


@triton.jit
def rope_kernel(
    source,
    target,
    cos_table,
    sin_table,
    seq_len,
    source_batch,
    source_token,
    source_head,
    target_batch,
    target_token,
    target_head,
    sign,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    ROTATES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate all heads of a token by sign * angle, or copy them."""
    token = tl.program_id(0) % seq_len
    batch = (tl.program_id(0) // seq_len).to(tl.int64)
    source += batch * source_batch + token.to(tl.int64) * source_token
    target += batch * target_batch + token.to(tl.int64) * target_token
    pair = tl.arange(0, BLOCK)
    inside = pair < HEADS * HALF
    head, channel = pair // HALF, pair % HALF
    at = source + head * source_head + channel
    first, second = tl.load(at, inside), tl.load(at + HALF, inside)
    if ROTATES:
        x, y = first.to(tl.float32), second.to(tl.float32)
        cos = tl.load(cos_table + token * HALF + channel, inside)
        sin = tl.load(sin_table + token * HALF + channel, inside) * sign
        first = (x * cos - y * sin).to(target.dtype.element_ty)
        second = (x * sin + y * cos).to(target.dtype.element_ty)
    to = target + head * target_head + channel
    tl.store(to, first, inside)
    tl.store(to + HALF, second, inside)


@triton.jit
def rms_norm_gradient_kernel(
    x,
    weight,
    grad_normed,
    grad_residual,
    grad_x,
    grad_weight,
    rows,
    width,
    eps,
    BLOCK: tl.constexpr,
):
    """The gradient of x for every n-th row, and this program's part of that of the weight.

    grad_weight: [programs, width], float32.
    """
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    scale = tl.load(weight + columns, inside, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    at = tl.program_id(0).to(tl.int64) * width + columns
    for _ in range(tl.program_id(0), rows, tl.num_programs(0)):
        value = tl.load(x + at, inside, other=0.0).to(tl.float32)
        dy = tl.load(grad_normed + at, inside, other=0.0).to(tl.float32)
        added = tl.load(grad_residual + at, inside, other=0.0).to(tl.float32)
        inverse = tl.rsqrt(tl.sum(value * value) / width + eps)
        unit = value * inverse
        total += dy * unit
        dy *= scale
        gradient = (dy - unit * (tl.sum(dy * unit) / width)) * inverse + added
        tl.store(grad_x + at, gradient.to(grad_x.dtype.element_ty), inside)
        at += tl.num_programs(0) * width
    tl.store(grad_weight + tl.program_id(0) * width + columns, total, inside)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up; gate_up: [..., 2 width], contiguous."""
    width = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    grid = out.numel() // width, triton.cdiv(width, _ELEMENTS)
    swiglu_kernel[grid](gate_up, out, width, _ELEMENTS)
    return out


def swiglu_gradient(gate_up: Tensor, grad_out: Tensor) -> Tensor:
    """The gradient of gate_up, given that of `swiglu(gate_up)`; both contiguous."""
    grad = torch.empty_like(gate_up)
    width = gate_up.shape[-1] // 2
    grid = grad_out.numel() // width, triton.cdiv(width, _ELEMENTS)
    swiglu_gradient_kernel[grid](gate_up, grad_out, grad, width, _ELEMENTS)
    return grad


def rope(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split qkv into rotated queries, rotated keys and values.

    Each result is [batch, seq_len, heads, d_head]. qkv: [batch, seq_len, 3, heads, d_head],
    contiguous; cos, sin: [context, d_head / 2], float32.
    """
    parts = qkv.unbind(2)
    targets = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in parts]
    _rope(parts, targets, cos, sin, 1.0)
    return tuple(targets)


def rope_gradient(dq: Tensor, dk: Tensor, dv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradient of qkv, given those of the results of `rope`, with any strides."""
    batch, seq_len, heads, d_head = dq.shape
    grad = dq.new_empty(batch, seq_len, 3, heads, d_head)
    sources = (part if part.stride(-1) == 1 else part.contiguous() for part in (dq, dk, dv))
    _rope(sources, grad.unbind(2), cos, sin, -1.0)
    return grad


def _rope(sources, targets, cos: Tensor, sin: Tensor, sign: float) -> None:
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        batch, seq_len, heads, d_head = source.shape
        block = triton.next_power_of_2(heads * d_head // 2)
        strides = (*source.stride()[:3], *target.stride()[:3])
        constants = heads, d_head // 2, number < 2, block
        rope_kernel[(batch * seq_len,)](
            source, target, cos, sin, seq_len, *strides, sign, *constants
        )


def rms_norm_gradient(
    x: Tensor, weight: Tensor, grad_normed: Tensor, grad_residual: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and that of the weight in parts [parts, width] float32, to be summed.

    grad_normed: the gradient of RMSNorm's output; grad_residual: added to the gradient of x. All
    are [..., width] and contiguous.
    """
    width = x.shape[-1]
    rows = x.numel() // width
    programs = min(rows, PROGRAMS)
    grad, parts = torch.empty_like(x), x.new_empty(programs, width, dtype=torch.float32)
    block = triton.next_power_of_2(width)
    rms_norm_gradient_kernel[(programs,)](
        *(x, weight, grad_normed, grad_residual, grad, parts, rows, width, eps),
        block,
        num_warps=8 if block >= 2048 else 4,
    )
    return grad, parts
