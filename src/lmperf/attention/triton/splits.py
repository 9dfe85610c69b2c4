"""Combines the partial results of split loops, for when there are too few tiles.

One head of n = 8192 is 64 tiles of 128 rows for 132 SMs, and under a causal mask the last tile has
128 times the work of the first. So each kernel can split its loop into chunks, with a program for
each. The kernels here combine the parts [splits, b, h, n, d] (float32) in a fixed order: results
are bitwise reproducible. Forward follows section 3.1 of Dao et al. 2023, "Flash-Decoding for
long-context inference": with L_s the logsumexp of chunk s, L = log sum_s exp(L_s) and
O = sum_s exp(L_s - L) O_s. Bytes: splits * 4 n d written and read once more, mostly in L2.

A chunk is a multiple of both sides of a tile, so every row of a tile sees the first key of each
chunk that the tile sees.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.launch import Form, Launch
from lmperf.attention.triton.tiles import LN_2, padded, sequence_at, store_tile

ROWS = 16

# Which chunks contribute to a row: all chunks, the chunks up to the row's own, or the chunks from
# its own on.
ALL, UP_TO, FROM = (tl.constexpr(i) for i in range(3))


def splits_of(length: int, chunk: int) -> int:
    """The number of chunks that `length` rows are split into; `chunk` 0 means no split."""
    return triton.cdiv(length, chunk) if chunk else 1


def new_parts(splits: int, like: Tensor) -> Tensor:
    """Uninitialised memory [splits, b, h, n, d], float32, for the partial results of `like`."""
    return like.new_empty((splits, *like.shape), dtype=torch.float32)


@triton.jit(do_not_specialize=("heads", "n", "splits", "chunk"))
def combine_kernel(
    parts,
    parts_lse,
    out,
    lse,
    strides_out,
    heads,
    n,
    splits,
    chunk,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Combine the parts of BLOCK rows into out and lse; parts_lse is in base 2."""
    tiles = tl.cdiv(n, BLOCK)
    sequences = tl.num_programs(0) // tiles
    sequence = tl.program_id(0) // tiles
    start = tl.program_id(0) % tiles * BLOCK
    rows = start + tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_D)
    inside = (rows < n)[:, None] & (columns < D)[None, :]
    if CAUSAL:
        splits = tl.minimum(splits, start // chunk + 1)
    acc = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    maximum = tl.full([BLOCK], float("-inf"), tl.float32)
    for split in range(splits):
        row = (tl.cast(split, tl.int64) * sequences + sequence) * n + rows
        part_lse = tl.load(parts_lse + row, rows < n, 0.0)
        part = tl.load(parts + row[:, None] * D + columns[None, :], inside, 0.0)
        new_maximum = tl.maximum(maximum, part_lse)
        correction = tl.exp2(maximum - new_maximum)
        weight = tl.exp2(part_lse - new_maximum)
        acc = acc * correction[:, None] + part * weight[:, None]
        total = total * correction + weight
        maximum = new_maximum
    out = sequence_at(out, strides_out, sequence // heads, sequence % heads)
    store_tile(
        out, acc / total[:, None], start, strides_out[2], strides_out[3], n, D, BLOCK, BLOCK_D
    )
    lse += tl.cast(sequence, tl.int64) * n
    tl.store(lse + rows, (maximum + tl.log2(total)) * LN_2, rows < n)


class Combine:
    """Launches `combine_kernel` for an output like q [b, h, n, d] and `splits` chunks."""

    def __init__(self, q: Form, splits: int, chunk: int, causal: bool):
        batch, heads, n, d = q.shape
        self._launch = Launch(
            combine_kernel,
            (triton.cdiv(n, ROWS) * batch * heads,),
            {"CAUSAL": causal, "D": d, "BLOCK": ROWS, "BLOCK_D": padded(d)},
            {"num_warps": 4},
        )
        self._scalars = (heads, n, splits, chunk)

    def __call__(self, parts: Tensor, parts_lse: Tensor, out: Tensor, lse: Tensor) -> None:
        """Write out [b, h, n, d] and lse [b, h, n], combined from the parts."""
        self._launch(parts, parts_lse, out, lse, out.stride(), *self._scalars)


@triton.jit(do_not_specialize=("heads", "n", "splits", "chunk"))
def sum_kernel(
    parts,
    out,
    strides_out,
    heads,
    n,
    splits,
    chunk,
    CHUNKS: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Add the parts of BLOCK rows, in the order of the chunks."""
    tiles = tl.cdiv(n, BLOCK)
    sequences = tl.num_programs(0) // tiles
    sequence = tl.program_id(0) // tiles
    start = tl.program_id(0) % tiles * BLOCK
    rows = start + tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_D)
    inside = (rows < n)[:, None] & (columns < D)[None, :]
    first = 0
    if CHUNKS == UP_TO:
        splits = tl.minimum(splits, start // chunk + 1)
    if CHUNKS == FROM:
        first = start // chunk
    acc = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for split in range(first, splits):
        row = (tl.cast(split, tl.int64) * sequences + sequence) * n + rows
        acc += tl.load(parts + row[:, None] * D + columns[None, :], inside, 0.0)
    out = sequence_at(out, strides_out, sequence // heads, sequence % heads)
    store_tile(out, acc, start, strides_out[2], strides_out[3], n, D, BLOCK, BLOCK_D)


class Sum:
    """Launches `sum_kernel` for a result like x [b, h, n, d].

    chunks: which chunks contribute to a row: ALL, UP_TO (its own and earlier ones) or FROM (its own
    and later ones).
    """

    def __init__(self, x: Form, splits: int, chunk: int, chunks: int):
        batch, heads, n, d = x.shape
        self._launch = Launch(
            sum_kernel,
            (triton.cdiv(n, ROWS) * batch * heads,),
            {"CHUNKS": chunks, "D": d, "BLOCK": ROWS, "BLOCK_D": padded(d)},
            {"num_warps": 4},
        )
        self._scalars = (heads, n, splits, chunk)

    def __call__(self, parts: Tensor, out: Tensor) -> None:
        """Write the sum of the parts over all chunks to out [b, h, n, d]."""
        self._launch(parts, out, out.stride(), *self._scalars)
