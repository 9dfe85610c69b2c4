"""Computes dQ: a program owns a tile of queries and loops over keys, as the forward kernel does."""

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.autotune import Kernel
from lmperf.attention.triton.configurations import Configuration
from lmperf.attention.triton.halves import add_rows, power_of_two, score_units
from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.operands import GradientLaunch, Inputs, Operands, operands_of
from lmperf.attention.triton.selection import choose
from lmperf.attention.triton.splits import ALL, UP_TO, Sum, new_parts, splits_of
from lmperf.attention.triton.tiles import (
    LENGTHS,
    LOG2_E,
    load,
    product,
    sequence_at,
    store_tile,
    transposed,
)


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
    """Compute dQ of one tile of queries over all keys that it sees, as the forward kernel loops.

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
    scale_log2, dp_unit = score_units(sizes, scale_log2, PRODUCTS)

    queries = (q, strides_q, batch, head, n_queries, batches)
    gradients = (grad_out, strides_grad, batch, head, n_queries, batches)
    keys = (k, strides_k, batch, head, n_keys, batches)
    values = (v, strides_v, batch, head, n_keys, batches)
    q_tile = load(queries, first_row, D, BLOCK_M, BLOCK_D, True, DESCRIBED, PRODUCTS)
    do = load(gradients, first_row, D, BLOCK_M, BLOCK_D, True, DESCRIBED, PRODUCTS)
    dq_tile = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    whole = high // BLOCK_N * BLOCK_N
    if CAUSAL:
        whole = tl.minimum(whole, first_row // BLOCK_N * BLOCK_N)
    for MASKED in tl.static_range(2 if CAUSAL or TAIL else 1):
        first = tl.maximum(low, whole) if MASKED else low
        last = high if MASKED else whole
        # On the diagonal the loop has one or two steps: a pipeline costs more than it hides.
        for start in tl.range(first, last, BLOCK_N, num_stages=1 if MASKED else None):
            k_tile = load(keys, start, D, BLOCK_N, BLOCK_D, MASKED, DESCRIBED, PRODUCTS)
            v_tile = load(values, start, D, BLOCK_N, BLOCK_D, MASKED, DESCRIBED, PRODUCTS)
            scores = product(q_tile, transposed(k_tile, PRODUCTS), PRODUCTS, PRECISION)
            p = tl.exp2(scores * scale_log2 - row_lse[:, None])
            if MASKED:
                columns = start + tl.arange(0, BLOCK_N)
                seen = (columns < n_keys)[None, :]
                if CAUSAL:
                    seen = seen & (columns[None, :] <= rows[:, None])
                p = tl.where(seen, p, 0.0)
            dp = product(do, transposed(v_tile, PRODUCTS), PRODUCTS, PRECISION)
            ds = p * (dp * dp_unit - row_delta[:, None])
            dq_tile = add_rows(dq_tile, ds, k_tile, PRODUCTS, PRECISION)
    if PRODUCTS == 3:
        dq_tile *= power_of_two(sizes + 1) * tl.exp2(-1.0 * P_SHIFT)
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


class QueryGradients:
    """Launches `query_gradients_kernel` and, if its loop is split, `Sum`, for one form of q."""

    def __init__(self, x: Inputs, q: Form, configuration: Configuration | None = None):
        batch, heads, n, d = q.shape
        m = x.keys
        c = configuration or choose(
            QUERY_GRADIENTS, x.causal, x.dtype, n, m, d, batch * heads, x.device
        )
        self._splits = splits = splits_of(m, c.chunk)
        self._launch = GradientLaunch(
            query_gradients_kernel, x, triton.cdiv(n, c.block_m), splits, c, m % c.block_n != 0
        )
        chunks = UP_TO if x.causal else ALL
        self._sum = Sum(q, splits, c.chunk, chunks) if splits > 1 else None

    def __call__(self, x: Operands, q: Tensor) -> Tensor:
        """Returns dQ [b, h, n, d] in the dtype and layout of q."""
        dq = torch.empty_like(q)
        part = new_parts(self._splits, q) if self._sum else dq
        self._launch(x, (part,), (dq.stride(),))
        if self._sum:
            self._sum(part, dq)
        return dq


def _prepare(
    x: Sequence[Tensor], lse: Tensor, delta: Tensor, causal: bool, configuration: Configuration
) -> Callable[[], tuple[Tensor, ...]]:
    q = x[0]
    reads, operands = operands_of(x, lse, delta, causal)
    launches = QueryGradients(reads, Form.of(q), configuration)
    return lambda: (launches(operands, q),)


QUERY_GRADIENTS = Kernel("query_gradients", ("dq",), _prepare)
