"""float32 operands as two float16 halves: the accuracy of float32 at the rate of float16.

After a scaling by a power of two that brings the largest |x| of the tensor to [2^14, 2^15),

    hi = float16(x),  lo = float16(x - hi),  |x - hi - lo| <= max(2^-23 |x|, 2^-25).

So 22 bits are kept of every element within 2^-17 of the largest, and 39 bits of the largest in
absolute terms (Ootomo and Yokota 2022, arXiv:2203.03341, who scale lo instead). Three products on
the matrix units of an H200 are then 330 TFLOP/s at most, where IEEE float32 has 67.

The gradient of the scores has no known size beforehand. It is bounded by
|dS_ij| <= P_ij 2 max_i |dO_i| max_j |V_j|, and scaled so that the bound fits.

Bytes: each tensor is read twice and written once more, 12 bytes an element.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.tiles import padded, sequence_at

ROWS = 64
# Probabilities times 2^12 keep their low bits above the smallest float16, with room to 2^15.
SHIFT = 12

_LARGEST = tl.constexpr(3.0e38)
_SMALLEST = tl.constexpr(1.0e-30)


@triton.jit(do_not_specialize=("heads", "n"))
def measure_kernel(
    x, sizes, strides, heads, n, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """sizes[0]: the largest |x|; sizes[1]: the largest norm of a row, without squares of |x|."""
    tile, _, _ = _rows(x, strides, heads, n, D, BLOCK, BLOCK_D)
    largest = tl.max(tl.abs(tile), 1)
    relative = tile / tl.maximum(largest, _SMALLEST)[:, None]
    norms = largest * tl.sqrt(tl.sum(relative * relative, 1))
    tl.atomic_max(sizes, tl.max(largest, 0))
    tl.atomic_max(sizes + 1, tl.max(norms, 0))


@triton.jit(do_not_specialize=("batches", "heads", "n"))
def split_kernel(
    x,
    sizes,
    halves,
    strides,
    batches,
    heads,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Writes halves [2, b, h, n, D] of x [b, h, n, D]."""
    tile, sequence, rows = _rows(x, strides, heads, n, D, BLOCK, BLOCK_D)
    columns = tl.arange(0, BLOCK_D)
    tile = tile / power_of_two(sizes)
    high = tile.to(tl.float16)
    low = (tile - high.to(tl.float32)).to(tl.float16)
    inside = (rows < n)[:, None] & (columns < D)[None, :]
    row = tl.cast(sequence, tl.int64) * n + rows
    second = tl.cast(batches, tl.int64) * heads * n
    tl.store(halves + row[:, None] * D + columns[None, :], high, inside)
    tl.store(halves + (row + second)[:, None] * D + columns[None, :], low, inside)


@triton.jit
def _rows(x, strides, heads, n, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    tiles = tl.cdiv(n, BLOCK)
    sequence = tl.program_id(0) // tiles
    rows = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_D)
    first = sequence_at(x, strides, sequence // heads, sequence % heads)
    at = first + tl.cast(rows, tl.int64)[:, None] * strides[2] + columns[None, :] * strides[3]
    return tl.load(at, (rows < n)[:, None] & (columns < D)[None, :], 0.0), sequence, rows


@triton.jit
def power_of_two(sizes):
    """What the halves of a tensor were divided by: its largest element is 2^14 to 2^15 times it."""
    largest = tl.minimum(tl.maximum(tl.load(sizes), _SMALLEST), _LARGEST)
    return tl.exp2(tl.floor(tl.log2(largest)) - 14.0)


@triton.jit
def score_gradient_scale(v_sizes, grad_sizes):
    """A power of two that brings 2^12 P (dP - delta) below 2^15."""
    bound = 2.0 * tl.load(v_sizes + 1) * tl.load(grad_sizes + 1)
    return tl.exp2(2.0 - tl.ceil(tl.log2(tl.minimum(tl.maximum(bound, _SMALLEST), _LARGEST))))


def split(x: Tensor, sizes: Tensor) -> Tensor:
    """The halves [2 b, h, n, d] float16 of x [b, h, n, d] float32.

    sizes: [2] float32, zeros; becomes the largest |x| and the largest norm of a row.
    """
    batch, heads, n, d = x.shape
    halves = x.new_empty((2 * batch, heads, n, d), dtype=torch.float16)
    grid = (triton.cdiv(n, ROWS) * batch * heads,)
    width = {"D": d, "BLOCK": ROWS, "BLOCK_D": padded(d)}
    measure_kernel[grid](x, sizes, x.stride(), heads, n, **width)
    split_kernel[grid](x, sizes, halves, x.stride(), batch, heads, n, **width)
    return halves
