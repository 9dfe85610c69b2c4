"""Forward pass: one kernel, a program for each tile of queries."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.kernels.flash_attention.configurations import Configuration, choose
from lmperf.kernels.flash_attention.tiles import (
    LENGTHS,
    LN_2,
    LOG2_E,
    addressable,
    dot_precision,
    load_tile,
    padded,
    sequence_offset,
    store_tile,
)


@triton.jit
def _attend(
    acc,
    total,
    maximum,
    q_tile,
    k,
    v,
    strides_k,
    strides_v,
    first_row,
    low,
    high,
    n_keys,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Online softmax over the keys low ... high (Dao 2023, algorithm 1, lines 6 to 10)."""
    rows = first_row + tl.arange(0, BLOCK_M)
    # On the diagonal the loop has a step or two, where a pipeline costs more than it hides.
    stages: tl.constexpr = 1 if MASKED else None
    for start in tl.range(low, high, BLOCK_N, num_stages=stages):
        k_tile = load_tile(
            k, start, strides_k[2], strides_k[3], n_keys, D, BLOCK_N, BLOCK_D, MASKED
        )
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        if MASKED:
            columns = start + tl.arange(0, BLOCK_N)
            seen = (columns < n_keys)[None, :]
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1) * scale_log2)
        p = tl.exp2(scores * scale_log2 - new_maximum[:, None])
        correction = tl.exp2(maximum - new_maximum)
        total = total * correction + tl.sum(p, 1)
        acc = acc * correction[:, None]
        v_tile = load_tile(
            v, start, strides_v[2], strides_v[3], n_keys, D, BLOCK_N, BLOCK_D, MASKED
        )
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc, input_precision=PRECISION)
        maximum = new_maximum
    return acc, total, maximum


@triton.jit(do_not_specialize=LENGTHS)
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
    strides_q,
    strides_k,
    strides_v,
    strides_out,
    heads,
    n_queries,
    n_keys,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Output and logsumexp of one tile of queries; maximum and scores in units of log 2.

    Keys that every row sees come first, without masks; then the tiles on the diagonal and, where
    the length is no multiple of the tile (TAIL), the last. The first tile holds key 0, which every
    row sees, so the running maximum is finite from then on.
    """
    tiles = tl.cdiv(n_queries, BLOCK_M)
    sequence = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    if CAUSAL:
        # The longest rows start first, so that no long program is left at the end.
        tile = tiles - 1 - tile
    first_row = tile * BLOCK_M
    q += sequence_offset(sequence, heads, strides_q)
    k += sequence_offset(sequence, heads, strides_k)
    v += sequence_offset(sequence, heads, strides_v)
    out += sequence_offset(sequence, heads, strides_out)
    lse += tl.cast(sequence, tl.int64) * n_queries

    q_tile = load_tile(
        q, first_row, strides_q[2], strides_q[3], n_queries, D, BLOCK_M, BLOCK_D, True
    )
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    whole = n_keys // BLOCK_N * BLOCK_N
    high = n_keys
    if CAUSAL:
        whole = tl.minimum(whole, first_row // BLOCK_N * BLOCK_N)
        high = tl.minimum(n_keys, first_row + BLOCK_M)
    acc, total, maximum = _attend(
        acc, total, maximum, q_tile, k, v, strides_k, strides_v, first_row, 0, whole,
        n_keys, scale_log2, D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, False, PRECISION,
    )  # fmt: skip
    if CAUSAL or TAIL:
        acc, total, maximum = _attend(
            acc, total, maximum, q_tile, k, v, strides_k, strides_v, first_row, whole, high,
            n_keys, scale_log2, D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, True, PRECISION,
        )  # fmt: skip

    acc = acc / total[:, None]
    store_tile(out, acc, first_row, strides_out[2], strides_out[3], n_queries, D, BLOCK_M, BLOCK_D)
    rows = first_row + tl.arange(0, BLOCK_M)
    tl.store(lse + rows, (maximum + tl.log2(total)) * LN_2, rows < n_queries)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float,
    configuration: Configuration | None = None,
) -> tuple[Tensor, Tensor]:
    """Launches the forward kernel.

    q: [b, h, n, d]; k, v: [b, h, m, d], any strides. Returns out [b, h, n, d] in q's dtype and,
    where q is dense, in q's layout, and lse [b, h, n] in float32.
    """
    q, k, v = addressable(q), addressable(k), addressable(v)
    batch, heads, n, d = q.shape
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    c = configuration or choose("forward", causal, q.dtype, n, d, batch * heads, q.device)
    grid = (triton.cdiv(n, c.block_m) * batch * heads,)
    with torch.cuda.device_of(q):
        forward_kernel[grid](
            q, k, v, out, lse, q.stride(), k.stride(), v.stride(), out.stride(),
            heads, n, k.shape[2], scale * LOG2_E.value,
            D=d, BLOCK_M=c.block_m, BLOCK_N=c.block_n, BLOCK_D=padded(d), CAUSAL=causal,
            TAIL=k.shape[2] % c.block_n != 0, PRECISION=dot_precision(q.dtype),
            num_warps=c.num_warps, num_stages=c.num_stages,
        )  # fmt: skip
    return out, lse
