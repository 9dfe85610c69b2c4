"""Loads and stores of [rows, d] tiles, and what the launches share."""

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

LARGEST_STRIDE = 2**22

# One compiled kernel serves every length and every number of heads.
LENGTHS = ("heads", "n_queries", "n_keys")


@triton.jit
def load_tile(
    base,
    start,
    stride_row,
    stride_column,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Rows start ... start + BLOCK of base [n, D] as [BLOCK, BLOCK_D], zeros beyond its edges."""
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_D)
    first = base + tl.cast(start, tl.int64) * stride_row
    pointers = first + (rows[:, None] * stride_row + columns[None, :] * stride_column)
    if MASKED:
        return tl.load(pointers, (rows[:, None] < n - start) & (columns[None, :] < D), 0.0)
    elif D < BLOCK_D:
        return tl.load(pointers, (columns < D)[None, :], 0.0)
    else:
        return tl.load(pointers)


@triton.jit
def store_tile(
    base,
    tile,
    start,
    stride_row,
    stride_column,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Writes [BLOCK, BLOCK_D] to rows start ... of base [n, D], in its dtype, within its edges."""
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_D)
    first = base + tl.cast(start, tl.int64) * stride_row
    pointers = first + (rows[:, None] * stride_row + columns[None, :] * stride_column)
    mask = (rows[:, None] < n - start) & (columns[None, :] < D)
    tl.store(pointers, tile.to(base.dtype.element_ty), mask)


@triton.jit
def sequence_offset(sequence, heads, strides):
    """Elements from the start of a [batch, heads, n, d] tensor to its sequence-th [n, d]."""
    batch = tl.cast(sequence // heads, tl.int64)
    head = tl.cast(sequence % heads, tl.int64)
    return batch * strides[0] + head * strides[1]


def padded(d: int) -> int:
    """The width of the tiles for heads of d: a power of two that tl.dot accepts."""
    return max(16, triton.next_power_of_2(d))


def addressable(x: Tensor) -> Tensor:
    """x, or a contiguous copy where offsets inside one tile would not fit into 32 bits."""
    return x.contiguous() if max(x.stride()[-2:]) >= LARGEST_STRIDE else x


def dot_precision(dtype: torch.dtype) -> str:
    """How tl.dot multiplies: "tf32", "tf32x3" or "ieee". Only float32 has a choice.

    tf32x3 splits each operand into two TF32 parts and adds three products: 2^-22 at a third of the
    TF32 rate. It needs Ampere or later.
    """
    if dtype != torch.float32:
        return "ieee"
    if INTERPRETED:
        return "ieee"
    if torch.backends.cuda.matmul.fp32_precision == "tf32":
        return "tf32"
    nvidia = torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 8
    return "tf32x3" if nvidia else "ieee"
