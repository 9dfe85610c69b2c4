"""Backward pass: delta, then dK and dV by tiles of keys, then dQ by tiles of queries.

The dK/dV kernel holds its scores transposed ([keys, queries]): P^T and dS^T are then the left
operands of the products that make dV and dK, straight from registers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.configurations import Configuration, choose, products_of
from lmperf.attention.triton.halves import (
    SHIFT,
    power_of_two,
    score_gradient_scale,
    split,
)
from lmperf.attention.triton.splits import ALL, FROM, UP_TO, add_up, new_parts, splits_of
from lmperf.attention.triton.tiles import (
    LENGTHS,
    LOG2_E,
    add_product,
    addressable,
    describable,
    described,
    dot_precision,
    load,
    load_tile,
    operand,
    padded,
    product,
    sequence_at,
    store_tile,
    transposed,
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
    batch, head = sequence // heads, sequence % heads
    start = tl.program_id(0) % tiles * BLOCK
    o = load_tile(out, strides_out, batch, head, start, n, D, BLOCK, BLOCK_D, True, False)
    do = load_tile(grad_out, strides_grad, batch, head, start, n, D, BLOCK, BLOCK_D, True, False)
    rows = start + tl.arange(0, BLOCK)
    delta += tl.cast(sequence, tl.int64) * n
    tl.store(delta + rows, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1), rows < n)


@triton.jit
def _units(sizes, scale_log2, PRODUCTS: tl.constexpr):
    """What scores, dP and dS are to be multiplied by: 1, or powers of two for halves."""
    if PRODUCTS == 3:
        scores = scale_log2 * power_of_two(sizes) * power_of_two(sizes + 2)
        dp = power_of_two(sizes + 4) * power_of_two(sizes + 6)
        return scores, dp, score_gradient_scale(sizes + 4, sizes + 6)
    else:
        return scale_log2, 1.0, 1.0


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
    batch,
    head,
    batches,
    first_column,
    low,
    high,
    n_queries,
    scale_log2,
    dp_unit,
    ds_unit,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    DIAGONAL: tl.constexpr,
    TAIL: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
    P_SHIFT: tl.constexpr,
):
    """Adds what the queries low ... high contribute to dK / scale and dV of one tile of keys."""
    for start in tl.range(low, high, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q_tile = load(
            q, strides_q, batch, head, start, n_queries, batches,
            D, BLOCK_M, BLOCK_D, TAIL, DESCRIBED, PRODUCTS,
        )  # fmt: skip
        # A logsumexp of infinity makes P vanish in rows beyond the last query.
        if TAIL:
            row_lse = tl.load(lse + rows, rows < n_queries, float("inf"))
            row_delta = tl.load(delta + rows, rows < n_queries, 0.0)
        else:
            row_lse = tl.load(lse + rows)
            row_delta = tl.load(delta + rows)
        scores = product(k_tile, transposed(q_tile, PRODUCTS), PRODUCTS, PRECISION)
        p = tl.exp2(scores * scale_log2 - (row_lse * LOG2_E - P_SHIFT)[None, :])
        if DIAGONAL:
            columns = first_column + tl.arange(0, BLOCK_N)
            p = tl.where(columns[:, None] <= rows[None, :], p, 0.0)
        do = load(
            grad_out, strides_grad, batch, head, start, n_queries, batches,
            D, BLOCK_M, BLOCK_D, TAIL, DESCRIBED, PRODUCTS,
        )  # fmt: skip
        dp = product(v_tile, transposed(do, PRODUCTS), PRODUCTS, PRECISION)
        dv = add_product(dv, operand(p, do, PRODUCTS), do, PRODUCTS, PRECISION)
        ds = p * (dp * dp_unit - row_delta[None, :]) * ds_unit
        dk = add_product(dk, operand(ds, q_tile, PRODUCTS), q_tile, PRODUCTS, PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=LENGTHS)
def key_gradients_kernel(
    q,
    k,
    v,
    grad_out,
    sizes,
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
    batches,
    heads,
    n_queries,
    n_keys,
    chunk,
    scale,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    SPLIT: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
    P_SHIFT: tl.constexpr,
):
    """dK and dV of one tile of keys, over all queries that see it; TAIL: n_queries % BLOCK_M.

    Rows beyond the last key hold garbage that stays in those rows and is not stored. With SPLIT,
    a program takes the queries of one chunk, and dk and dv are parts [splits, b, h, m, d].
    """
    tiles = tl.cdiv(n_keys, BLOCK_N)
    sequence = tl.program_id(0) // tiles
    batch, head = sequence // heads, sequence % heads
    first_column = tl.program_id(0) % tiles * BLOCK_N
    low = 0
    high = n_queries
    if SPLIT:
        low = tl.program_id(1) * chunk
        high = tl.minimum(n_queries, low + chunk)
        if CAUSAL and high <= first_column:
            return
    lse += tl.cast(sequence, tl.int64) * n_queries
    delta += tl.cast(sequence, tl.int64) * n_queries
    scale_log2, dp_unit, ds_unit = _units(sizes, scale_log2, PRODUCTS)

    k_tile = load(
        k, strides_k, batch, head, first_column, n_keys, batches,
        D, BLOCK_N, BLOCK_D, True, DESCRIBED, PRODUCTS,
    )  # fmt: skip
    v_tile = load(
        v, strides_v, batch, head, first_column, n_keys, batches,
        D, BLOCK_N, BLOCK_D, True, DESCRIBED, PRODUCTS,
    )  # fmt: skip
    dk_tile = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_tile = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    if CAUSAL:
        diagonal = tl.maximum(low, first_column // BLOCK_M * BLOCK_M)
        low = tl.maximum(low, tl.cdiv(first_column + BLOCK_N, BLOCK_M) * BLOCK_M)
        dk_tile, dv_tile = _accumulate_key_gradients(
            dk_tile, dv_tile, k_tile, v_tile, q, grad_out, lse, delta, strides_q, strides_grad,
            batch, head, batches, first_column, diagonal, tl.minimum(low, high), n_queries,
            scale_log2, dp_unit, ds_unit, D, BLOCK_M, BLOCK_N, BLOCK_D, True, TAIL,
            DESCRIBED, PRODUCTS, PRECISION, P_SHIFT,
        )  # fmt: skip
    dk_tile, dv_tile = _accumulate_key_gradients(
        dk_tile, dv_tile, k_tile, v_tile, q, grad_out, lse, delta, strides_q, strides_grad,
        batch, head, batches, first_column, low, high, n_queries,
        scale_log2, dp_unit, ds_unit, D, BLOCK_M, BLOCK_N, BLOCK_D, False, TAIL,
        DESCRIBED, PRODUCTS, PRECISION, P_SHIFT,
    )  # fmt: skip
    if PRODUCTS == 3:
        dk_tile *= power_of_two(sizes) / ds_unit * tl.exp2(-1.0 * P_SHIFT)
        dv_tile *= power_of_two(sizes + 6) * tl.exp2(-1.0 * P_SHIFT)
    dk_tile *= scale
    if SPLIT:
        part = tl.program_id(1) * (tl.num_programs(0) // tiles) + sequence
        dk += tl.cast(part, tl.int64) * n_keys * D
        dv += tl.cast(part, tl.int64) * n_keys * D
        store_tile(dk, dk_tile, first_column, D, 1, n_keys, D, BLOCK_N, BLOCK_D)
        store_tile(dv, dv_tile, first_column, D, 1, n_keys, D, BLOCK_N, BLOCK_D)
    else:
        dk = sequence_at(dk, strides_dk, batch, head)
        dv = sequence_at(dv, strides_dv, batch, head)
        store_tile(
            dk, dk_tile, first_column, strides_dk[2], strides_dk[3], n_keys, D, BLOCK_N, BLOCK_D
        )
        store_tile(
            dv, dv_tile, first_column, strides_dv[2], strides_dv[3], n_keys, D, BLOCK_N, BLOCK_D
        )


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
    batch,
    head,
    batches,
    first_row,
    low,
    high,
    n_keys,
    scale_log2,
    dp_unit,
    ds_unit,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds what the keys low ... high contribute to dQ / scale of one tile of queries."""
    rows = first_row + tl.arange(0, BLOCK_M)
    # On the diagonal the loop has a step or two, where a pipeline costs more than it hides.
    stages: tl.constexpr = 1 if MASKED else None
    for start in tl.range(low, high, BLOCK_N, num_stages=stages):
        k_tile = load(
            k, strides_k, batch, head, start, n_keys, batches,
            D, BLOCK_N, BLOCK_D, MASKED, DESCRIBED, PRODUCTS,
        )  # fmt: skip
        v_tile = load(
            v, strides_v, batch, head, start, n_keys, batches,
            D, BLOCK_N, BLOCK_D, MASKED, DESCRIBED, PRODUCTS,
        )  # fmt: skip
        scores = product(q_tile, transposed(k_tile, PRODUCTS), PRODUCTS, PRECISION)
        p = tl.exp2(scores * scale_log2 - row_lse[:, None])
        if MASKED:
            columns = start + tl.arange(0, BLOCK_N)
            seen = (columns < n_keys)[None, :]
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            p = tl.where(seen, p, 0.0)
        dp = product(do, transposed(v_tile, PRODUCTS), PRODUCTS, PRECISION)
        ds = p * (dp * dp_unit - row_delta[:, None]) * ds_unit
        dq = add_product(dq, operand(ds, k_tile, PRODUCTS), k_tile, PRODUCTS, PRECISION)
    return dq


@triton.jit(do_not_specialize=LENGTHS)
def query_gradients_kernel(
    q,
    k,
    v,
    grad_out,
    sizes,
    lse,
    delta,
    dq,
    strides_q,
    strides_k,
    strides_v,
    strides_grad,
    strides_dq,
    batches,
    heads,
    n_queries,
    n_keys,
    chunk,
    scale,
    scale_log2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    SPLIT: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
    P_SHIFT: tl.constexpr,
):
    """dQ of one tile of queries, over all keys that it sees, in the order of the forward kernel.

    With SPLIT, a program takes the keys of one chunk, and dq is a part [splits, b, h, n, d].
    """
    tiles = tl.cdiv(n_queries, BLOCK_M)
    sequence = tl.program_id(0) // tiles
    batch, head = sequence // heads, sequence % heads
    tile = tl.program_id(0) % tiles
    if CAUSAL:
        tile = tiles - 1 - tile
    first_row = tile * BLOCK_M
    low = 0
    high = n_keys
    if CAUSAL:
        high = tl.minimum(n_keys, first_row + BLOCK_M)
    if SPLIT:
        low = tl.program_id(1) * chunk
        if low >= high:
            return
        high = tl.minimum(high, low + chunk)
    rows = first_row + tl.arange(0, BLOCK_M)
    row = tl.cast(sequence, tl.int64) * n_queries + rows
    row_lse = tl.load(lse + row, rows < n_queries, float("inf")) * LOG2_E - P_SHIFT
    row_delta = tl.load(delta + row, rows < n_queries, 0.0)
    scale_log2, dp_unit, ds_unit = _units(sizes, scale_log2, PRODUCTS)

    q_tile = load(
        q, strides_q, batch, head, first_row, n_queries, batches,
        D, BLOCK_M, BLOCK_D, True, DESCRIBED, PRODUCTS,
    )  # fmt: skip
    do = load(
        grad_out, strides_grad, batch, head, first_row, n_queries, batches,
        D, BLOCK_M, BLOCK_D, True, DESCRIBED, PRODUCTS,
    )  # fmt: skip
    dq_tile = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    whole = high // BLOCK_N * BLOCK_N
    if CAUSAL:
        whole = tl.minimum(whole, first_row // BLOCK_N * BLOCK_N)
    dq_tile = _accumulate_query_gradients(
        dq_tile, q_tile, do, row_lse, row_delta, k, v, strides_k, strides_v, batch, head, batches,
        first_row, low, whole, n_keys, scale_log2, dp_unit, ds_unit, D, BLOCK_M, BLOCK_N, BLOCK_D,
        CAUSAL, False, DESCRIBED, PRODUCTS, PRECISION,
    )  # fmt: skip
    if CAUSAL or TAIL:
        dq_tile = _accumulate_query_gradients(
            dq_tile, q_tile, do, row_lse, row_delta, k, v, strides_k, strides_v, batch, head,
            batches, first_row, tl.maximum(low, whole), high, n_keys, scale_log2, dp_unit, ds_unit,
            D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, True, DESCRIBED, PRODUCTS, PRECISION,
        )  # fmt: skip
    if PRODUCTS == 3:
        dq_tile *= power_of_two(sizes + 2) / ds_unit * tl.exp2(-1.0 * P_SHIFT)
    dq_tile *= scale
    if SPLIT:
        part = tl.program_id(1) * (tl.num_programs(0) // tiles) + sequence
        dq += tl.cast(part, tl.int64) * n_queries * D
        store_tile(dq, dq_tile, first_row, D, 1, n_queries, D, BLOCK_M, BLOCK_D)
    else:
        dq = sequence_at(dq, strides_dq, batch, head)
        store_tile(
            dq, dq_tile, first_row, strides_dq[2], strides_dq[3], n_queries, D, BLOCK_M, BLOCK_D
        )


@dataclass(frozen=True)
class Operands:
    """What both gradient kernels read: q, k, v, dO as they are or in halves, lse and delta.

    q, grad_out [b, h, n, d] and k, v [b, h, m, d], or for halves [2 b, ...]; lse, delta [b, h, n].
    """

    tensors: Sequence[Tensor]
    sizes: Tensor | None
    lse: Tensor
    delta: Tensor
    causal: bool
    scale: float
    dtype: torch.dtype

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        grad_out: Tensor,
        lse: Tensor,
        delta: Tensor,
        causal: bool,
        scale: float,
    ) -> "Operands":
        tensors, sizes = (q, k, v, grad_out), None
        if products_of(q.dtype) == 3:
            sizes = q.new_zeros((4, 2))
            tensors = [split(x, size) for x, size in zip(tensors, sizes, strict=True)]
        return cls(tensors, sizes, lse, delta, causal, scale, q.dtype)

    def launch(
        self,
        kernel: Callable,
        tiles: int,
        splits: int,
        c: Configuration,
        tail: bool,
        results: Sequence[Tensor],
        strides: Sequence[tuple[int, ...]],
    ) -> None:
        """Runs a kernel that owns `tiles` tiles a sequence; `strides` are those of the results."""
        products = 3 if self.sizes is not None else 1
        batch, heads, n = self.lse.shape
        is_described = describable(*self.tensors)
        rows = (c.block_m, c.block_n, c.block_n, c.block_m)
        inputs = [described(x, r, is_described) for x, r in zip(self.tensors, rows, strict=True)]
        kernel[tiles * batch * heads, splits](
            *inputs, self.sizes, self.lse, self.delta, *results,
            *(x.stride() for x in self.tensors), *strides,
            batch, heads, n, self.tensors[1].shape[2], c.chunk, self.scale,
            self.scale * LOG2_E.value,
            D=self.tensors[0].shape[-1], BLOCK_M=c.block_m, BLOCK_N=c.block_n,
            BLOCK_D=padded(self.tensors[0].shape[-1]), CAUSAL=self.causal, TAIL=tail,
            SPLIT=splits > 1, DESCRIBED=is_described, PRODUCTS=products,
            PRECISION=dot_precision(self.dtype), P_SHIFT=SHIFT if products == 3 else 0,
            num_warps=c.num_warps, num_stages=c.num_stages,
        )  # fmt: skip


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
    x: Operands, k: Tensor, v: Tensor, configuration: Configuration | None = None
) -> tuple[Tensor, Tensor]:
    """dK, dV [b, h, m, d] in the dtypes and layouts of k and v."""
    batch, heads, m, d = k.shape
    n = x.lse.shape[2]
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    c = configuration or choose(
        "key_gradients", x.causal, k.dtype, m, n, d, batch * heads, k.device
    )
    splits = splits_of(n, c.chunk)
    parts = (new_parts(splits, k), new_parts(splits, v)) if splits > 1 else (dk, dv)
    tiles, strides = triton.cdiv(m, c.block_n), (dk.stride(), dv.stride())
    with torch.cuda.device_of(k):
        x.launch(key_gradients_kernel, tiles, splits, c, n % c.block_m != 0, parts, strides)
        if splits > 1:
            for part, result in zip(parts, (dk, dv), strict=True):
                add_up(part, result, c.chunk, FROM if x.causal else ALL)
    return dk, dv


def query_gradients(x: Operands, q: Tensor, configuration: Configuration | None = None) -> Tensor:
    """dQ [b, h, n, d] in the dtype and layout of q."""
    batch, heads, n, d = q.shape
    m = x.tensors[1].shape[2]
    dq = torch.empty_like(q)
    c = configuration or choose(
        "query_gradients", x.causal, q.dtype, n, m, d, batch * heads, q.device
    )
    splits = splits_of(m, c.chunk)
    part = new_parts(splits, q) if splits > 1 else dq
    tiles = triton.cdiv(n, c.block_m)
    with torch.cuda.device_of(q):
        x.launch(
            query_gradients_kernel, tiles, splits, c, m % c.block_n != 0, (part,), (dq.stride(),)
        )
        if splits > 1:
            add_up(part, dq, c.chunk, UP_TO if x.causal else ALL)
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
    with torch.cuda.device_of(q):
        x = Operands.of(q, k, v, grad_out, lse, delta, causal, scale)
    dk, dv = key_gradients(x, k, v)
    return query_gradients(x, q), dk, dv
