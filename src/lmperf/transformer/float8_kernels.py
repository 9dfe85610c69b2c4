"""Triton kernels that store tensors in float8 (E4M3), with one scale a tensor.

A scale comes from the greatest magnitude that the tensor had in the step before, so that a kernel
which computes a tensor can store it in float8 at once, and take its greatest magnitude for the next
step. Magnitudes above the range saturate.

Inverse scale, scale and greatest magnitude of a tensor are a cell: `CELL` float32 numbers on the
device.
Operators read and raise the greatest magnitude behind the back of autograd and torch.compile: it is
never read where they could reorder it, and raising it twice does no harm.

Source: Micikevicius et al. 2022 (arXiv 2209.05433), section 3.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPE = torch.float8_e4m3fn
# The inverse of the scale, which cuBLAS reads and wants at 16 bytes, the scale, the greatest
# magnitude, and one number that aligns cells.
CELL = 4
_CELL = tl.constexpr(CELL)
# The largest number of E4M3.
_MOST = tl.constexpr(448.0)
# A tensor may grow by this factor from one step to the next before it saturates.
_MARGIN = tl.constexpr(2.0)
_ELEMENTS = 4096
# Rows and columns of the tile that a program transposes.
_TILE = 64
_CELLS_OF_PROGRAM = 128


@triton.jit
def store_float8(at, value, scale, inside):
    """Store float32 values in float8."""
    tl.store(at, rounded(value, scale), inside)


@triton.jit
def rounded(value, scale):
    """float32 values in float8, saturated."""
    return tl.clamp(value * scale, -_MOST, _MOST).to(tl.float8e4nv)


@triton.jit
def raise_greatest(cell, values):
    """Raise the greatest magnitude of a cell to that of values, [n] or [n, m]."""
    greatest = tl.max(tl.abs(values))
    # Few programs find a greater one: atomic operations on one address would follow each other.
    tl.atomic_max(cell + 2, greatest, mask=greatest > tl.load(cell + 2))


@triton.jit
def float8_cast_kernel(x, out, cell, count, BLOCK: tl.constexpr):
    """Cast a block of elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x + at, inside, other=0.0).to(tl.float32)
    store_float8(out + at, value, tl.load(cell + 1), inside)
    raise_greatest(cell, value)


@triton.jit
def float8_weight_kernel(weight, rows, columns, cell, height, width, TILE: tl.constexpr):
    """Cast a tile of a matrix [height, width] and store it as it is and transposed."""
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = (row < height)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    value = tl.load(weight + at, inside, other=0.0).to(tl.float32)
    low = rounded(value, tl.load(cell + 1))
    tl.store(rows + at, low, inside)
    to = column[:, None] * height + row[None, :]
    tl.store(columns + to, tl.trans(low), tl.trans(inside))
    raise_greatest(cell, value)


@triton.jit
def next_scales_kernel(cells, count, BLOCK: tl.constexpr):
    """Turn the greatest magnitudes of cells into scales, powers of two, and clear them.

    A cell whose greatest magnitude is 0 or not finite keeps its scale.
    """
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = number < count
    at = cells + number * _CELL
    greatest = tl.load(at + 2, inside, other=0.0)
    largest = _MOST / (_MARGIN * tl.where(greatest > 0, greatest, 1.0))
    # A float32 number without its mantissa: the power of two below it.
    power = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    # The inverse of a smaller or larger power is not a normal number.
    is_known = (greatest > 0) & (power > 2.0**-120) & (power < 2.0**120)
    scale = tl.where(is_known, power, tl.load(at + 1, inside, other=1.0))
    tl.store(at, 1 / scale, inside)
    tl.store(at + 1, scale, inside)
    tl.store(at + 2, 0.0, inside)


def float8_cast(x: Tensor, cells: Tensor, number: int) -> Tensor:
    """x in float8 by the scale of a cell, of the same shape; x: contiguous.

    cells: [cells, CELL]; the greatest magnitude of the cell of this number is raised.
    """
    out = torch.empty_like(x, dtype=DTYPE)
    grid = (triton.cdiv(x.numel(), _ELEMENTS),)
    float8_cast_kernel[grid](x, out, cells[number], x.numel(), _ELEMENTS)
    return out


def cast_weight(weight: Tensor, rows: Tensor, columns: Tensor, cell: Tensor) -> None:
    """Write a matrix [out, in] in float8 into rows [out, in] and columns [in, out].

    All are contiguous. cell: [CELL]; its greatest magnitude is raised.
    """
    height, width = weight.shape
    grid = triton.cdiv(height, _TILE), triton.cdiv(width, _TILE)
    float8_weight_kernel[grid](weight, rows, columns, cell, height, width, _TILE)


def next_scales(cells: Tensor) -> None:
    """Set scales and inverses of cells [..., CELL] by their greatest magnitudes and clear these."""
    count = cells.numel() // CELL
    grid = (triton.cdiv(count, _CELLS_OF_PROGRAM),)
    next_scales_kernel[grid](cells, count, _CELLS_OF_PROGRAM)
