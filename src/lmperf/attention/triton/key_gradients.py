"""Computes dK and dV: a program owns a tile of keys and loops over queries.

The scores are transposed, [keys, queries]: P^T and dS^T are then the left operands of the matmuls
of dV and dK and stay in registers.
"""

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
from lmperf.attention.triton.splits import ALL, FROM, Sum, new_parts, splits_of
from lmperf.attention.triton.tiles import (
    LENGTHS,
    LOG2_E,
    add_product,
    load,
    operand,
    product,
    sequence_at,
    store_tile,
    transposed,
)


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
    """Compute dK and dV of one tile of keys over all queries that see it.

    TAIL: n_queries % BLOCK_M. Rows beyond the last key contain garbage, which no other row reads
    and which is not stored. With SPLIT, a program takes the queries of one chunk, and dk and dv are
    parts [splits, b, h, m, d].
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
    scale_log2, dp_unit = score_units(sizes, scale_log2, PRODUCTS)

    queries = (q, strides_q, batch, head, n_queries, batches)
    gradients = (grad_out, strides_grad, batch, head, n_queries, batches)
    keys = (k, strides_k, batch, head, n_keys, batches)
    values = (v, strides_v, batch, head, n_keys, batches)
    columns = first_column + tl.arange(0, BLOCK_N)
    k_tile = load(keys, first_column, D, BLOCK_N, BLOCK_D, True, DESCRIBED, PRODUCTS)
    v_tile = load(values, first_column, D, BLOCK_N, BLOCK_D, True, DESCRIBED, PRODUCTS)
    dk_tile = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_tile = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    if CAUSAL:
        diagonal = tl.maximum(low, first_column // BLOCK_M * BLOCK_M)
        low = tl.maximum(low, tl.cdiv(first_column + BLOCK_N, BLOCK_M) * BLOCK_M)
    for PAST_DIAGONAL in tl.static_range(0 if CAUSAL else 1, 2):
        first = low if PAST_DIAGONAL else diagonal
        last = high if PAST_DIAGONAL else tl.minimum(low, high)
        for start in tl.range(first, last, BLOCK_M):
            rows = start + tl.arange(0, BLOCK_M)
            q_tile = load(queries, start, D, BLOCK_M, BLOCK_D, TAIL, DESCRIBED, PRODUCTS)
            # An infinite logsumexp makes P zero in rows beyond the last query.
            if TAIL:
                row_lse = tl.load(lse + rows, rows < n_queries, float("inf"))
                row_delta = tl.load(delta + rows, rows < n_queries, 0.0)
            else:
                row_lse = tl.load(lse + rows)
                row_delta = tl.load(delta + rows)
            scores = product(k_tile, transposed(q_tile, PRODUCTS), PRODUCTS, PRECISION)
            p = tl.exp2(scores * scale_log2 - (row_lse * LOG2_E - P_SHIFT)[None, :])
            if not PAST_DIAGONAL:
                p = tl.where(columns[:, None] <= rows[None, :], p, 0.0)
            do = load(gradients, start, D, BLOCK_M, BLOCK_D, TAIL, DESCRIBED, PRODUCTS)
            dp = product(v_tile, transposed(do, PRODUCTS), PRODUCTS, PRECISION)
            dv_tile = add_product(dv_tile, operand(p, do, PRODUCTS), do, PRODUCTS, PRECISION)
            ds = p * (dp * dp_unit - row_delta[None, :])
            dk_tile = add_rows(dk_tile, ds, q_tile, PRODUCTS, PRECISION)
    if PRODUCTS == 3:
        dk_tile *= power_of_two(sizes) * tl.exp2(-1.0 * P_SHIFT)
        dv_tile *= power_of_two(sizes + 3) * tl.exp2(-1.0 * P_SHIFT)
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


class KeyGradients:
    """Launches `key_gradients_kernel` and, if its loop is split, `Sum`, for one form of k and v."""

    def __init__(self, x: Inputs, k: Form, v: Form, configuration: Configuration | None = None):
        batch, heads, m, d = k.shape
        n = x.shape[2]
        c = configuration or choose(
            KEY_GRADIENTS, x.causal, x.dtype, m, n, d, batch * heads, x.device
        )
        self._splits = splits = splits_of(n, c.chunk)
        self._launch = GradientLaunch(
            key_gradients_kernel, x, triton.cdiv(m, c.block_n), splits, c, n % c.block_m != 0
        )
        chunks = FROM if x.causal else ALL
        self._sums = [Sum(form, splits, c.chunk, chunks) for form in (k, v)] if splits > 1 else []

    def __call__(self, x: Operands, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Returns dK and dV [b, h, m, d] in the dtypes and layouts of k and v."""
        results = torch.empty_like(k), torch.empty_like(v)
        parts = tuple(new_parts(self._splits, r) for r in results) if self._sums else results
        self._launch(x, parts, [r.stride() for r in results])
        for add_up, part, result in zip(self._sums, parts, results, strict=False):
            add_up(part, result)
        return results


def _prepare(
    x: Sequence[Tensor], lse: Tensor, delta: Tensor, causal: bool, configuration: Configuration
) -> Callable[[], tuple[Tensor, ...]]:
    _, k, v, _ = x
    reads, operands = operands_of(x, lse, delta, causal)
    launches = KeyGradients(reads, Form.of(k), Form.of(v), configuration)
    return lambda: launches(operands, k, v)


KEY_GRADIENTS = Kernel("key_gradients", ("dk", "dv"), _prepare)
