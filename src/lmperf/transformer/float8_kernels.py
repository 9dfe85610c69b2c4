"""Triton kernels that store tensors in float8 (E4M3), with one scale a tensor.

A scale comes from the greatest magnitude that the tensor had in the step before, so that a kernel
which computes a tensor can store it in float8 at once, and take its greatest magnitude for the next
step. Magnitudes above the range saturate.

Inverse scale, scale and greatest magnitude of a tensor are a cell: `CELL` float32 numbers on the
device. Operators read and raise the greatest magnitude behind the back of autograd and
torch.compile: it is never read where they could reorder it, and raising it twice does no harm.

Source: Micikevicius et al. 2022 (arXiv 2209.05433), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

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
# Matrices of a launch: as in `adamw_kernel`.
_WEIGHTS = 16
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
def float8_weight_kernel(weights, rows, columns, cells, height, width, TILE: tl.constexpr):
    """Cast a tile of one of several matrices [height, width]; store it as it is and transposed.

    weights ... cells: tuples of pointers.
    """
    matrix = tl.program_id(2)
    weight, low_rows, low_columns, cell = weights[0], rows[0], columns[0], cells[0]
    for number in tl.static_range(1, len(weights)):
        here = matrix == number
        weight = tl.where(here, weights[number], weight)
        low_rows = tl.where(here, rows[number], low_rows)
        low_columns = tl.where(here, columns[number], low_columns)
        cell = tl.where(here, cells[number], cell)
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = (row < height)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    value = tl.load(weight + at, inside, other=0.0).to(tl.float32)
    low = rounded(value, tl.load(cell + 1))
    tl.store(low_rows + at, low, inside)
    to = column[:, None] * height + row[None, :]
    tl.store(low_columns + to, tl.trans(low), tl.trans(inside))
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


def cast_weights(matrices: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]) -> None:
    """Write matrices in float8, as they are and transposed; a launch casts many of one shape.

    matrices: weight [out, in], rows [out, in] and columns [in, out] that are written, and cell
    [CELL] of each, contiguous; the greatest magnitude of the cell is raised.
    """
    alike: dict[torch.Size, list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}
    for matrix in matrices:
        alike.setdefault(matrix[0].shape, []).append(matrix)
    for (height, width), of_shape in alike.items():
        for first in range(0, len(of_shape), _WEIGHTS):
            some = of_shape[first : first + _WEIGHTS]
            grid = triton.cdiv(height, _TILE), triton.cdiv(width, _TILE), len(some)
            # The same number in every launch, so that Triton compiles once; none reads the others.
            some = some + some[-1:] * (_WEIGHTS - len(some))
            float8_weight_kernel[grid](*zip(*some, strict=True), height, width, _TILE)


def next_scales(cells: Tensor) -> None:
    """Set scales and inverses of cells [..., CELL] by their greatest magnitudes and clear these."""
    count = cells.numel() // CELL
    grid = (triton.cdiv(count, _CELLS_OF_PROGRAM),)
    next_scales_kernel[grid](cells, count, _CELLS_OF_PROGRAM)
