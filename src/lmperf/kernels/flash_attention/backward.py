"""Backward pass: delta, then dK and dV by tiles of keys, then dQ by tiles of queries.

The dK/dV kernel holds its scores transposed ([keys, queries]): P^T and dS^T are then the left
operands of the products that make dV and dK, straight from registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.kernels.flash_attention.configurations import Configuration, choose
from lmperf.kernels.flash_attention.tiles import (
    LENGTHS,
    LOG2_E,
    addressable,
    dot_precision,
    load_tile,
    padded,
    sequence_offset,
    store_tile,
)

DELTA_ROWS = 32


@triton.jit(do_not_specialize=("heads", "n"))
def delta_kernel(
    out,
    grad_out,
    delta,
    strides_out,
    strides_grad,
    heads,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """delta = rowsum(dO * O), read: out, grad_out; written: delta [b, h, n] float32."""
    tiles = tl.cdiv(n, BLOCK)
    sequence = tl.program_id(0) // tiles
    start = tl.program_id(0) % tiles * BLOCK
    out += sequence_offset(sequence, heads, strides_out)
    grad_out += sequence_offset(sequence, heads, strides_grad)
    o = load_tile(out, start, strides_out[2], strides_out[3], n, D, BLOCK, BLOCK_D, True)
    do = load_tile(grad_out, start, strides_grad[2], strides_grad[3], n, D, BLOCK, BLOCK_D, True)
    rows = start + tl.arange(0, BLOCK)
    delta += tl.cast(sequence, tl.int64) * n
    tl.store(delta + rows, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1), rows < n)


@triton.jit
def _accumulate_key_gradients(
    dk,
    dv,
    k_tile,
    v_tile,
    q,
    grad_out,
    lse,
    delta,
    strides_q,
    strides_grad,
    first_column,
    low,
    high,
    n_queries,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    DIAGONAL: tl.constexpr,
    TAIL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds what the queries low ... high contribute to dK / scale and dV of one tile of keys."""
    for start in tl.range(low, high, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q_tile = load_tile(
            q, start, strides_q[2], strides_q[3], n_queries, D, BLOCK_M, BLOCK_D, TAIL
        )
        # A logsumexp of infinity makes P vanish in rows beyond the last query.
        if TAIL:
            row_lse = tl.load(lse + rows, rows < n_queries, float("inf"))
            row_delta = tl.load(delta + rows, rows < n_queries, 0.0)
        else:
            row_lse = tl.load(lse + rows)
            row_delta = tl.load(delta + rows)
        scores = tl.dot(k_tile, tl.trans(q_tile), input_precision=PRECISION)
        p = tl.exp2(scores * scale_log2 - (row_lse * LOG2_E)[None, :])
        if DIAGONAL:
            columns = first_column + tl.arange(0, BLOCK_N)
            p = tl.where(columns[:, None] <= rows[None, :], p, 0.0)
        do = load_tile(
            grad_out, start, strides_grad[2], strides_grad[3], n_queries, D, BLOCK_M, BLOCK_D, TAIL
        )
        dp = tl.dot(v_tile, tl.trans(do), input_precision=PRECISION)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
        ds = p * (dp - row_delta[None, :])
        dk = tl.dot(ds.to(q_tile.dtype), q_tile, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=LENGTHS)
def key_gradients_kernel(
    q,
    k,
    v,
    grad_out,
    lse,
    delta,
    dk,
    dv,
    strides_q,
    strides_k,
    strides_v,
    strides_grad,
    strides_dk,
    strides_dv,
    heads,
    n_queries,
    n_keys,
    scale,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """dK and dV of one tile of keys, over all queries that see it; TAIL: n_queries % BLOCK_M.

    Rows beyond the last key hold garbage that stays in those rows and is not stored.
    """
    tiles = tl.cdiv(n_keys, BLOCK_N)
    sequence = tl.program_id(0) // tiles
    first_column = tl.program_id(0) % tiles * BLOCK_N
    q += sequence_offset(sequence, heads, strides_q)
    k += sequence_offset(sequence, heads, strides_k)
    v += sequence_offset(sequence, heads, strides_v)
    grad_out += sequence_offset(sequence, heads, strides_grad)
    dk += sequence_offset(sequence, heads, strides_dk)
    dv += sequence_offset(sequence, heads, strides_dv)
    lse += tl.cast(sequence, tl.int64) * n_queries
    delta += tl.cast(sequence, tl.int64) * n_queries

    k_tile = load_tile(
        k, first_column, strides_k[2], strides_k[3], n_keys, D, BLOCK_N, BLOCK_D, True
    )
    v_tile = load_tile(
        v, first_column, strides_v[2], strides_v[3], n_keys, D, BLOCK_N, BLOCK_D, True
    )
    dk_tile = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_tile = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    low = 0
    if CAUSAL:
        diagonal = first_column // BLOCK_M * BLOCK_M
        low = tl.cdiv(first_column + BLOCK_N, BLOCK_M) * BLOCK_M
        dk_tile, dv_tile = _accumulate_key_gradients(
            dk_tile, dv_tile, k_tile, v_tile, q, grad_out, lse, delta, strides_q, strides_grad,
            first_column, diagonal, tl.minimum(low, n_queries), n_queries, scale_log2,
            D, BLOCK_M, BLOCK_N, BLOCK_D, True, TAIL, PRECISION,
        )  # fmt: skip
    dk_tile, dv_tile = _accumulate_key_gradients(
        dk_tile, dv_tile, k_tile, v_tile, q, grad_out, lse, delta, strides_q, strides_grad,
        first_column, low, n_queries, n_queries, scale_log2,
        D, BLOCK_M, BLOCK_N, BLOCK_D, False, TAIL, PRECISION,
    )  # fmt: skip
    store_tile(
        dk, dk_tile * scale, first_column, strides_dk[2], strides_dk[3], n_keys, D, BLOCK_N, BLOCK_D
    )
    store_tile(dv, dv_tile, first_column, strides_dv[2], strides_dv[3], n_keys, D, BLOCK_N, BLOCK_D)


@triton.jit
def _accumulate_query_gradients(
    dq,
    q_tile,
    do,
    row_lse,
    row_delta,
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
    """Adds what the keys low ... high contribute to dQ / scale of one tile of queries."""
    rows = first_row + tl.arange(0, BLOCK_M)
    # On the diagonal the loop has a step or two, where a pipeline costs more than it hides.
    stages: tl.constexpr = 1 if MASKED else None
    for start in tl.range(low, high, BLOCK_N, num_stages=stages):
        k_tile = load_tile(
            k, start, strides_k[2], strides_k[3], n_keys, D, BLOCK_N, BLOCK_D, MASKED
        )
        v_tile = load_tile(
            v, start, strides_v[2], strides_v[3], n_keys, D, BLOCK_N, BLOCK_D, MASKED
        )
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        p = tl.exp2(scores * scale_log2 - row_lse[:, None])
        if MASKED:
            columns = start + tl.arange(0, BLOCK_N)
            seen = (columns < n_keys)[None, :]
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            p = tl.where(seen, p, 0.0)
        dp = tl.dot(do, tl.trans(v_tile), input_precision=PRECISION)
        ds = p * (dp - row_delta[:, None])
        dq = tl.dot(ds.to(k_tile.dtype), k_tile, dq, input_precision=PRECISION)
    return dq


@triton.jit(do_not_specialize=LENGTHS)
def query_gradients_kernel(
    q,
    k,
    v,
    grad_out,
    lse,
    delta,
    dq,
    strides_q,
    strides_k,
    strides_v,
    strides_grad,
    strides_dq,
    heads,
    n_queries,
    n_keys,
    scale,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """dQ of one tile of queries, over all keys that it sees, in the order of the forward kernel."""
    tiles = tl.cdiv(n_queries, BLOCK_M)
    sequence = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    if CAUSAL:
        tile = tiles - 1 - tile
    first_row = tile * BLOCK_M
    q += sequence_offset(sequence, heads, strides_q)
    k += sequence_offset(sequence, heads, strides_k)
    v += sequence_offset(sequence, heads, strides_v)
    grad_out += sequence_offset(sequence, heads, strides_grad)
    dq += sequence_offset(sequence, heads, strides_dq)
    rows = first_row + tl.arange(0, BLOCK_M)
    row = tl.cast(sequence, tl.int64) * n_queries + rows
    row_lse = tl.load(lse + row, rows < n_queries, float("inf")) * LOG2_E
    row_delta = tl.load(delta + row, rows < n_queries, 0.0)

    q_tile = load_tile(
        q, first_row, strides_q[2], strides_q[3], n_queries, D, BLOCK_M, BLOCK_D, True
    )
    do = load_tile(
        grad_out, first_row, strides_grad[2], strides_grad[3], n_queries, D, BLOCK_M, BLOCK_D, True
    )
    dq_tile = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    whole = n_keys // BLOCK_N * BLOCK_N
    high = n_keys
    if CAUSAL:
        whole = tl.minimum(whole, first_row // BLOCK_N * BLOCK_N)
        high = tl.minimum(n_keys, first_row + BLOCK_M)
    dq_tile = _accumulate_query_gradients(
        dq_tile, q_tile, do, row_lse, row_delta, k, v, strides_k, strides_v, first_row, 0, whole,
        n_keys, scale_log2, D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, False, PRECISION,
    )  # fmt: skip
    if CAUSAL or TAIL:
        dq_tile = _accumulate_query_gradients(
            dq_tile, q_tile, do, row_lse, row_delta, k, v, strides_k, strides_v, first_row, whole,
            high, n_keys, scale_log2, D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, True, PRECISION,
        )  # fmt: skip
    store_tile(
        dq, dq_tile * scale, first_row, strides_dq[2], strides_dq[3], n_queries, D, BLOCK_M, BLOCK_D
    )


def delta_of(out: Tensor, grad_out: Tensor) -> Tensor:
    """rowsum(dO * O) [b, h, n] float32 of two [b, h, n, d] of any strides."""
    batch, heads, n, d = out.shape
    delta = out.new_empty(out.shape[:3], dtype=torch.float32)
    grid = (triton.cdiv(n, DELTA_ROWS) * batch * heads,)
    with torch.cuda.device_of(out):
        delta_kernel[grid](
            out, grad_out, delta, out.stride(), grad_out.stride(), heads, n,
            D=d, BLOCK=DELTA_ROWS, BLOCK_D=padded(d), num_warps=4,
        )  # fmt: skip
    return delta


def key_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    causal: bool,
    scale: float,
    configuration: Configuration | None = None,
) -> tuple[Tensor, Tensor]:
    """dK, dV [b, h, m, d] in the dtypes and layouts of k and v; lse, delta [b, h, n] contiguous."""
    batch, heads, n, d = q.shape
    m = k.shape[2]
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    c = configuration or choose("key_gradients", causal, k.dtype, m, d, batch * heads, k.device)
    grid = (triton.cdiv(m, c.block_n) * batch * heads,)
    with torch.cuda.device_of(q):
        key_gradients_kernel[grid](
            q, k, v, grad_out, lse, delta, dk, dv, q.stride(), k.stride(), v.stride(),
            grad_out.stride(), dk.stride(), dv.stride(), heads, n, m, scale, scale * LOG2_E.value,
            D=d, BLOCK_M=c.block_m, BLOCK_N=c.block_n, BLOCK_D=padded(d), CAUSAL=causal,
            TAIL=n % c.block_m != 0, PRECISION=dot_precision(q.dtype),
            num_warps=c.num_warps, num_stages=c.num_stages,
        )  # fmt: skip
    return dk, dv


def query_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    lse: Tensor,
    delta: Tensor,
    causal: bool,
    scale: float,
    configuration: Configuration | None = None,
) -> Tensor:
    """dQ [b, h, n, d] in the dtype and layout of q; lse, delta [b, h, n] contiguous."""
    batch, heads, n, d = q.shape
    m = k.shape[2]
    dq = torch.empty_like(q)
    c = configuration or choose("query_gradients", causal, q.dtype, n, d, batch * heads, q.device)
    grid = (triton.cdiv(n, c.block_m) * batch * heads,)
    with torch.cuda.device_of(q):
        query_gradients_kernel[grid](
            q, k, v, grad_out, lse, delta, dq, q.stride(), k.stride(), v.stride(),
            grad_out.stride(), dq.stride(), heads, n, m, scale, scale * LOG2_E.value,
            D=d, BLOCK_M=c.block_m, BLOCK_N=c.block_n, BLOCK_D=padded(d), CAUSAL=causal,
            TAIL=m % c.block_n != 0, PRECISION=dot_precision(q.dtype),
            num_warps=c.num_warps, num_stages=c.num_stages,
        )  # fmt: skip
    return dq


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV from what forward saved.

    q, out, grad_out: [b, h, n, d]; k, v: [b, h, m, d]; lse, grad_lse: [b, h, n]. A gradient of the
    logsumexp adds P * dL to dS, so it is taken off delta.
    """
    q, k, v, out, grad_out = (addressable(t) for t in (q, k, v, out, grad_out))
    delta = delta_of(out, grad_out)
    if grad_lse is not None:
        delta = (delta - grad_lse).contiguous()
    dk, dv = key_gradients(q, k, v, grad_out, lse, delta, causal, scale)
    return query_gradients(q, k, v, grad_out, lse, delta, causal, scale), dk, dv
