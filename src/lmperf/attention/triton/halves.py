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

from lmperf.attention.triton.launch import Form, Launch
from lmperf.attention.triton.tiles import padded, sequence_at

ROWS = 64
# Probabilities times 2^12 keep their low bits above the smallest float16, with room to 2^15.
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
    """Two sizes of each tensor [b, h, n, D]; program_id(1) says of which.

    sizes[i, 0]: the largest |x|; sizes[i, 1]: the largest norm of a row, without squares of |x|.
    """
    for i in tl.static_range(len(tensors)):
        tiles = tl.cdiv(lengths[i], BLOCK)
        sequence = tl.program_id(0) // tiles
        if (tl.program_id(1) == i) & (sequence < batches * heads):
            rows = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
            tile = _rows(tensors[i], strides[i], sequence, rows, heads, lengths[i], D, BLOCK_D)
            largest = tl.max(tl.abs(tile), 1)
            relative = tile / tl.maximum(largest, _SMALLEST)[:, None]
            norms = largest * tl.sqrt(tl.sum(relative * relative, 1))
            tl.atomic_max(sizes + 2 * i, tl.max(largest, 0))
            tl.atomic_max(sizes + 2 * i + 1, tl.max(norms, 0))


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
    """Writes halves [2, b, h, n, D] of each tensor [b, h, n, D]; program_id(1) says of which."""
    for i in tl.static_range(len(tensors)):
        n = lengths[i]
        tiles = tl.cdiv(n, BLOCK)
        sequence = tl.program_id(0) // tiles
        if (tl.program_id(1) == i) & (sequence < batches * heads):
            rows = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
            tile = _rows(tensors[i], strides[i], sequence, rows, heads, n, D, BLOCK_D)
            tile = tile / power_of_two(sizes + 2 * i)
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
    """What the halves of a tensor were divided by: its largest element is 2^14 to 2^15 times it."""
    largest = tl.minimum(tl.maximum(tl.load(sizes), _SMALLEST), _LARGEST)
    return tl.exp2(tl.floor(tl.log2(largest)) - 14.0)


@triton.jit
def score_gradient_scale(v_sizes, grad_sizes):
    """A power of two that brings 2^12 P (dP - delta) below 2^15."""
    bound = 2.0 * tl.load(v_sizes + 1) * tl.load(grad_sizes + 1)
    return tl.exp2(2.0 - tl.ceil(tl.log2(tl.minimum(tl.maximum(bound, _SMALLEST), _LARGEST))))


class Halves:
    """Launches what divides tensors [b, h, n, d] float32, whose n may differ, into halves.

    Attributes:
        forms: of the halves, [2 b, h, n, d] float16.
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
        """Their sizes [tensors, 2] float32 (the largest |x|, the largest norm of a row), halves."""
        sizes = tensors[0].new_zeros((len(tensors), 2))
        halves = tuple(
            x.new_empty(form.shape, dtype=form.dtype)
            for x, form in zip(tensors, self.forms, strict=True)
        )
        self._measure(tensors, sizes, *self._arguments)
        self._split(tensors, halves, sizes, *self._arguments)
        return sizes, halves
