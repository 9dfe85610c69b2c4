"""Fused backward pass on a Hopper GPU: five matmuls per tile instead of seven.

A program owns a tile of keys and loops over the queries, as in FlashAttention-3 (Shah et al. 2024,
arXiv:2407.08608, section 3.4). dK and dV stay in registers; each tile of dQ is added to a float32
accumulator in device memory: for heads of up to 64 channels from shared memory by warps of their
own (`hopper_backward_narrow_kernel.py`), for wider ones atomically from registers.

The warps of their own can add in a fixed order (`hopper_turns.py`), so that dQ has the same bits in
every run. They do so where many tiles of keys follow each other on an SM, since nothing has to zero
the accumulator then, and up to 128 channels under torch.use_deterministic_algorithms.

Three launches: `prepare_kernel` writes the rows (logsumexp and delta) and zeroes the accumulator or
the turns, `fused_kernel` adds, `finish_kernel` scales dQ and rounds it. Bytes beyond those of the
two gradient kernels: per padded element of dQ 4 to read the accumulator, 4 to zero it unless the
order is fixed, and 4 for every tile of keys that adds to it, mostly in L2.

What was tried and is slower: docs/kernels.md.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.configurations import FusedConfiguration, device_facts
from lmperf.attention.triton.launch import Form, Launch
from lmperf.attention.triton.tiles import LOG2_E, load_tile, padded, sequence_at, store_tile

WARPS = 8
# Padded head width of the warp-specialised kernel.
NARROW = 64
# The widest padded head whose additions to dQ can have a fixed order.
WIDEST_ORDERED = 128
# As `WORDS` of `hopper_turns.py`, which is in Gluon.
WORDS = 4
# Bytes of Q, dO and dQ of the sequences whose tiles of keys are claimed together, with a causal
# mask (True) and without. LONG: the share of these tiles that is claimed last, the longest first,
# if dQ has a fixed order.
TOGETHER, LONG = {True: 32 * 2**20, False: 16 * 2**20}, 0.25
# With fewer tiles of keys for each program, waits for turns cost more than zeros.
FEWEST_WAVES = 4


@triton.jit(do_not_specialize=("heads", "n"))
def prepare_kernel(
    out,
    grad_out,
    lse,
    grad_lse,
    rows,
    dq,
    turns,
    strides_out,
    strides_grad,
    heads,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_GRAD_LSE: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Write `rows`, and zero `dq` and `turns` unless they are None, for one tile of queries.

    rows [b h tiles, 2, BLOCK] float32: logsumexp / log 2, and delta = rowsum(dO * O) - grad_lse.
    dq: [b h tiles, BLOCK * BLOCK_D] float32; turns: [b h tiles, WORDS] int32.
    """
    tiles = tl.cdiv(n, BLOCK)
    sequence = tl.program_id(0) // tiles
    batch, head = sequence // heads, sequence % heads
    start = tl.program_id(0) % tiles * BLOCK
    o = load_tile(out, strides_out, batch, head, start, n, D, BLOCK, BLOCK_D, True, False)
    do = load_tile(grad_out, strides_grad, batch, head, start, n, D, BLOCK, BLOCK_D, True, False)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n - start
    row = tl.cast(sequence, tl.int64) * n + start + offsets
    # An infinite logsumexp makes P zero in rows beyond the last query.
    row_lse = tl.load(lse + row, inside, float("inf")) * LOG2_E
    if HAS_GRAD_LSE:
        delta -= tl.load(grad_lse + row, inside, 0.0)
    tile = tl.cast(tl.program_id(0), tl.int64)
    rows += tile * (2 * BLOCK)
    tl.store(rows + offsets, row_lse)
    tl.store(rows + BLOCK + offsets, delta)
    if dq is not None:
        elements = offsets[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
        dq += tile * (BLOCK * BLOCK_D)
        tl.store(dq + elements, tl.zeros([BLOCK, BLOCK_D], tl.float32))
    if turns is not None:
        tl.store(turns + tile * WORDS + tl.arange(0, WORDS), tl.zeros([WORDS], tl.int32))


@triton.jit(do_not_specialize=("heads", "n"))
def finish_kernel(
    accumulated,
    dq,
    strides_dq,
    heads,
    n,
    scale,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    PARTS: tl.constexpr,
):
    """dQ = scale * accumulated, for one tile of queries in the element order of `fused_kernel`.

    PARTS: how many parts its rows were added in, one after the other in memory.
    """
    tiles = tl.cdiv(n, BLOCK)
    sequence = tl.program_id(0) // tiles
    start = tl.program_id(0) % tiles * BLOCK
    ROWS: tl.constexpr = BLOCK_D if TRANSPOSED else BLOCK
    COLUMNS: tl.constexpr = BLOCK if TRANSPOSED else BLOCK_D
    first = accumulated + tl.cast(tl.program_id(0), tl.int64) * (BLOCK * BLOCK_D)
    tile = tl.load(first + tl.arange(0, BLOCK * BLOCK_D))
    # From WGMMA fragments, in the order of `_add_fragments`, to rows and columns.
    tile = tl.reshape(tile, [PARTS, COLUMNS // 8, ROWS // 16 // PARTS, 8, 4, 2, 2])
    tile = tl.reshape(tl.permute(tile, (0, 2, 5, 3, 1, 4, 6)), [ROWS, COLUMNS])
    if TRANSPOSED:
        tile = tl.trans(tile)
    dq = sequence_at(dq, strides_dq, sequence // heads, sequence % heads)
    store_tile(dq, tile * scale, start, strides_dq[2], strides_dq[3], n, D, BLOCK, BLOCK_D)


class Fused:
    """Launches of one signature: float16 or bfloat16 tensors that TMA can read."""

    def __init__(
        self,
        q: Form,
        k: Form,
        out: Form,
        grad_out: Form,
        has_grad_lse: bool,
        causal: bool,
        scale: float,
        c: FusedConfiguration,
        deterministic: bool = False,
    ):
        """deterministic: give the same bits in every run, for padded head widths up to 128."""
        batch, heads, n, d = q.shape
        width = padded(d)
        tiles = triton.cdiv(n, c.block_m) * batch * heads
        tile = {"D": d, "BLOCK": c.block_m, "BLOCK_D": width}
        claims = width == NARROW or deterministic
        self._is_ordered = deterministic
        if claims:
            waves = _waves(q, k, c, causal)
            self._is_ordered |= waves.items >= FEWEST_WAVES * waves.programs
            self._fused, self._sizes = _narrow(q, k, causal, scale, c, waves, self._is_ordered)
        else:
            self._fused, self._sizes = _wide(q, k, causal, scale, c)
        self._words = tiles * WORDS if claims else 0
        self._prepare = Launch(
            prepare_kernel,
            (tiles,),
            tile | {"HAS_GRAD_LSE": has_grad_lse, "WORDS": WORDS},
            {"num_warps": 4},
        )
        self._finish = Launch(
            finish_kernel,
            (tiles,),
            tile | {"TRANSPOSED": width == c.block_n, "PARTS": 2 if claims else 1},
            {"num_warps": 4},
        )
        self._room = (tiles * 2 * c.block_m, tiles * c.block_m * width)
        self._strides = (out.strides, grad_out.strides)
        self._scalars = (heads, n, scale)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns dQ, dK, dV in dtype and layout of q, k, v; shapes as in `backward.backward`."""
        heads, n, scale = self._scalars
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        rows, accumulated = (
            torch.empty(size, dtype=torch.float32, device=q.device) for size in self._room
        )
        if grad_lse is not None:
            grad_lse = grad_lse.contiguous()
        turns = None
        if self._words:
            turns = torch.empty(self._words, dtype=torch.int32, device=q.device)
        zeroed = None if self._is_ordered else accumulated
        self._prepare(out, grad_out, lse, grad_lse, rows, zeroed, turns, *self._strides, heads, n)
        arguments = (accumulated, turns) if self._words else (accumulated,)
        self._fused(q, k, v, grad_out, rows, dk, dv, *arguments, *self._sizes)
        self._finish(accumulated, dq, dq.stride(), heads, n, scale)
        return dq, dk, dv


def _described(c: FusedConfiguration, width: int) -> tuple[Callable[[Tensor], Any], ...]:
    """Functions that make the TMA descriptors of q, k, v, dO, rows, dK and dV."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from lmperf.attention.triton.hopper_backward_kernel import LAYOUT, ROWS_LAYOUT

    def described(rows: int):
        box = [1, 1, rows, width]
        return lambda x: TensorDescriptor(x, list(x.shape), list(x.stride()), box, LAYOUT)

    def in_rows(x: Tensor) -> TensorDescriptor:
        return TensorDescriptor(x, list(x.shape), [1], [2 * c.block_m], ROWS_LAYOUT)

    queries, keys = described(c.block_m), described(c.block_n)
    return queries, keys, keys, queries, in_rows, keys, keys


class Waves(NamedTuple):
    """How tiles of keys are claimed.

    `programs` of them are computed at a time. Sizes as in `hopper_turns.py`.
    """

    programs: int
    items: int
    sequences: int
    key_tiles: int
    together: int


def _waves(q: Form, k: Form, c: FusedConfiguration, causal: bool) -> Waves:
    batch, heads, n, d = q.shape
    key_tiles, sequences = triton.cdiv(k.shape[2], c.block_n), batch * heads
    _, sms = device_facts(q.device.index)
    items = key_tiles * sequences
    # Q and dO are read, and float32 dQ is added to.
    sequence_bytes = n * padded(d) * (2 * q.dtype.itemsize + 4)
    together = max(TOGETHER[causal] // sequence_bytes, triton.cdiv(sms, key_tiles))
    return Waves(min(items, sms), items, sequences, key_tiles, min(together, sequences))


def _wide(
    q: Form, k: Form, causal: bool, scale: float, c: FusedConfiguration
) -> tuple[Launch, tuple]:
    """Launch of the kernel for padded head widths above 64, and its last arguments."""
    from lmperf.attention.triton.hopper_backward_kernel import fused_kernel

    batch, heads, n, d = q.shape
    m, width = k.shape[2], padded(d)
    launch = Launch(
        fused_kernel,
        (triton.cdiv(m, c.block_n) * batch * heads,),
        {
            "BLOCK_M": c.block_m, "BLOCK_N": c.block_n, "BLOCK_D": width, "CAUSAL": causal,
            "STAGES": c.num_stages, "num_warps": WARPS,
        },
        {},
        _described(c, width),
    )  # fmt: skip
    return launch, (heads, n, m, scale, scale * LOG2_E.value)


def _narrow(
    q: Form,
    k: Form,
    causal: bool,
    scale: float,
    c: FusedConfiguration,
    waves: Waves,
    ordered: bool,
) -> tuple[Launch, tuple]:
    """Launch of the warp-specialised kernel, and its last arguments."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from lmperf.attention.triton.hopper_backward_narrow_kernel import (
        LINE,
        LINES,
        LINES_LAYOUT,
        fused_kernel,
    )

    _, heads, n, d = q.shape
    width, line = padded(d), LINE.value
    long = int(LONG * waves.key_tiles) if ordered else waves.key_tiles

    def in_lines(x: Tensor) -> TensorDescriptor:
        shape = [x.numel() // line, line]
        return TensorDescriptor(x, shape, [line, 1], [LINES.value, line], LINES_LAYOUT)

    launch = Launch(
        fused_kernel,
        (waves.programs,),
        {
            "BLOCK_M": c.block_m, "BLOCK_N": c.block_n, "BLOCKS": 2 if width == NARROW else 1,
            "CAUSAL": causal, "ORDERED": ordered,
        },
        {"num_warps": 4},
        (*_described(c, width), in_lines),
    )  # fmt: skip
    return launch, (*waves[1:], long, heads, n, k.shape[2], scale * LOG2_E.value)
