"""Split float32 operands into two float16 halves, a high and a low one, for float16 tensor cores.

After scaling by a power of two that brings the largest |x| of the tensor to [2^14, 2^15),

    hi = float16(x),  lo = float16(x - hi),  |x - hi - lo| <= max(2^-23 |x|, 2^-25).

Every element within 2^-17 of the largest keeps 22 bits; the absolute error is 2^-39 of the largest
(Ootomo and Yokota 2022, arXiv:2203.03341, who scale lo instead). A product is three matmuls: up to
330 TFLOP/s on an H200, against 67 TFLOP/s of IEEE float32.

The size of dS is not known beforehand, and where P is tiny, a whole row of dS is: a single scale
would leave few bits to such rows. So each row of each tile of dS has its own scale.

Bytes: each tensor is read twice and written once more, 12 bytes per element.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.launch import Form, Launch
from lmperf.attention.triton.tiles import add_product, operand, padded, product, sequence_at

ROWS = 64
# Scales probabilities by 2^12: their low bits stay above the smallest float16, without overflow.
SHIFT = 12

_LARGEST = tl.constexpr(3.0e38)
_SMALLEST = tl.constexpr(1.0e-30)


@triton.jit(do_not_specialize=("batches", "heads", "lengths"))
def measure_kernel(
    tensors,
    sizes,
    strides,
    batches,
    heads,
    lengths,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write max |x| of tensor i, [b, h, n, D], to sizes[i]; program_id(1) selects the tensor."""
    for i in tl.static_range(len(tensors)):
        tiles = tl.cdiv(lengths[i], BLOCK)
        sequence = tl.program_id(0) // tiles
        if (tl.program_id(1) == i) & (sequence < batches * heads):
            rows = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
            tile = _rows(tensors[i], strides[i], sequence, rows, heads, lengths[i], D, BLOCK_D)
            tl.atomic_max(sizes + i, tl.max(tl.max(tl.abs(tile), 1), 0))


@triton.jit(do_not_specialize=("batches", "heads", "lengths"))
def split_kernel(
    tensors,
    halves,
    sizes,
    strides,
    batches,
    heads,
    lengths,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write high and low half [2, b, h, n, D] of tensor i [b, h, n, D]; i is program_id(1)."""
    for i in tl.static_range(len(tensors)):
        n = lengths[i]
        tiles = tl.cdiv(n, BLOCK)
        sequence = tl.program_id(0) // tiles
        if (tl.program_id(1) == i) & (sequence < batches * heads):
            rows = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
            tile = _rows(tensors[i], strides[i], sequence, rows, heads, n, D, BLOCK_D)
            tile = tile / power_of_two(sizes + i)
            high = tile.to(tl.float16)
            low = (tile - high.to(tl.float32)).to(tl.float16)
            columns = tl.arange(0, BLOCK_D)
            inside = (rows < n)[:, None] & (columns < D)[None, :]
            row = tl.cast(sequence, tl.int64) * n + rows
            second = tl.cast(batches, tl.int64) * heads * n
            tl.store(halves[i] + row[:, None] * D + columns[None, :], high, inside)
            tl.store(halves[i] + (row + second)[:, None] * D + columns[None, :], low, inside)


@triton.jit
def _rows(x, strides, sequence, rows, heads, n, D: tl.constexpr, BLOCK_D: tl.constexpr):
    columns = tl.arange(0, BLOCK_D)
    first = sequence_at(x, strides, sequence // heads, sequence % heads)
    at = first + tl.cast(rows, tl.int64)[:, None] * strides[2] + columns[None, :] * strides[3]
    return tl.load(at, (rows < n)[:, None] & (columns < D)[None, :], 0.0)


@triton.jit
def power_of_two(sizes):
    """The power of two that a tensor is divided by before its split, from its max |x|."""
    return tl.exp2(_exponent(tl.load(sizes)))


@triton.jit
def _exponent(largest):
    largest = tl.minimum(tl.maximum(largest, _SMALLEST), _LARGEST)
    return tl.floor(tl.log2(largest)) - 14.0


@triton.jit
def score_units(sizes, scale_log2, PRODUCTS: tl.constexpr):
    """Factors by which the products q k and dO v are multiplied.

    The first contains the scale of the scores, in base 2. For split operands, both contain the
    powers of two that the operands were divided by.
    """
    if PRODUCTS == 3:
        scores = scale_log2 * power_of_two(sizes) * power_of_two(sizes + 1)
        return scores, power_of_two(sizes + 2) * power_of_two(sizes + 3)
    else:
        return scale_log2, 1.0


@triton.jit
def add_rows(acc, x, b, PRODUCTS: tl.constexpr, PRECISION: tl.constexpr):
    """acc + x b for a float32 x [m, k] of unknown size and an operand b [k, n].

    If x is split into halves, each row is divided by its own power of two; other operands are
    divided by one power of two per tensor.
    """
    if PRODUCTS == 3:
        exponent = _exponent(tl.max(tl.abs(x), 1))
        a = operand(x * tl.exp2(-exponent)[:, None], b, PRODUCTS)
        return acc + product(a, b, PRODUCTS, PRECISION) * tl.exp2(exponent)[:, None]
    else:
        return add_product(acc, operand(x, b, PRODUCTS), b, PRODUCTS, PRECISION)


class Halves:
    """Launches of the kernels that split float32 tensors into a high and a low float16 half.

    The tensors are [b, h, n, d]; n may differ between them.

    Attributes:
        forms: the `Form` of each result, [2 b, h, n, d] float16.
    """

    def __init__(self, *tensors: Form):
        batch, heads, _, d = tensors[0].shape
        lengths = tuple(x.shape[2] for x in tensors)
        grid = (triton.cdiv(max(lengths), ROWS) * batch * heads, len(tensors))
        width, options = {"D": d, "BLOCK": ROWS, "BLOCK_D": padded(d)}, {"num_warps": 4}
        self._measure = Launch(measure_kernel, grid, width, options)
        self._split = Launch(split_kernel, grid, width, options)
        self._arguments = (tuple(x.strides for x in tensors), batch, heads, lengths)
        self.forms = tuple(
            Form(
                (2 * batch, heads, n, d),
                (heads * n * d, n * d, d, 1),
                torch.float16,
                tensors[0].device,
                True,
            )
            for n in lengths
        )

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Split the tensors; returns max |x| of each, [tensors] float32, and the halves of each."""
        sizes = tensors[0].new_zeros(len(tensors))
        halves = tuple(
            x.new_empty(form.shape, dtype=form.dtype)
            for x, form in zip(tensors, self.forms, strict=True)
        )
        self._measure(tensors, sizes, *self._arguments)
        self._split(tensors, halves, sizes, *self._arguments)
        return sizes, halves
