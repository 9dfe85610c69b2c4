"""Forward pass: one program for each tile of queries, or for each chunk of the keys of a tile."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.gluon import Attempt
from lmperf.attention.triton import hopper_forward
from lmperf.attention.triton.arguments import check_arguments, scale_of
from lmperf.attention.triton.autotune import Kernel
from lmperf.attention.triton.configurations import Configuration, products_of
from lmperf.attention.triton.halves import SHIFT, Halves, power_of_two
from lmperf.attention.triton.launch import (
    MOST_PLANS,
    Form,
    Launch,
    addressable,
    form,
    on_device,
    tiles_of,
    tma_readable,
)
from lmperf.attention.triton.selection import choose
from lmperf.attention.triton.splits import Combine, new_parts, splits_of
from lmperf.attention.triton.tiles import (
    LENGTHS,
    LN_2,
    LOG2_E,
    add_product,
    dot_precision,
    load,
    operand,
    padded,
    product,
    sequence_at,
    store_tile,
    transposed,
)


@triton.jit(do_not_specialize=LENGTHS)
def forward_kernel(
    q,
    k,
    v,
    sizes,
    out,
    lse,
    strides_q,
    strides_k,
    strides_v,
    strides_out,
    batches,
    heads,
    n_queries,
    n_keys,
    chunk,
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
    """Compute output and logsumexp of one tile of queries by the online softmax.

    Dao 2023, algorithm 1, lines 6 to 10; maximum and scores are in base 2.

    Tiles of keys that every row sees come first, without a mask; then those on the diagonal and, if
    the length is no multiple of the tile (TAIL), the last one. The first tile has a key that every
    row sees, so the running maximum is finite from then on. With SPLIT, a program takes the keys
    of one chunk, and out and lse are partial results [splits, b, h, n, (d)] in float32.
    """
    tiles = tl.cdiv(n_queries, BLOCK_M)
    sequence = tl.program_id(0) // tiles
    batch, head = sequence // heads, sequence % heads
    tile = tl.program_id(0) % tiles
    if CAUSAL:
        # Tiles with the most keys start first, so that no long program runs alone at the end.
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
    if PRODUCTS == 3:
        scale_log2 *= power_of_two(sizes) * power_of_two(sizes + 1)

    queries = (q, strides_q, batch, head, n_queries, batches)
    keys = (k, strides_k, batch, head, n_keys, batches)
    values = (v, strides_v, batch, head, n_keys, batches)
    rows = first_row + tl.arange(0, BLOCK_M)
    q_tile = load(queries, first_row, D, BLOCK_M, BLOCK_D, True, DESCRIBED, PRODUCTS)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    whole = high // BLOCK_N * BLOCK_N
    if CAUSAL:
        whole = tl.minimum(whole, first_row // BLOCK_N * BLOCK_N)
    for MASKED in tl.static_range(2 if CAUSAL or TAIL else 1):
        first = tl.maximum(low, whole) if MASKED else low
        last = high if MASKED else whole
        # On the diagonal the loop has one or two steps: a pipeline costs more than it hides.
        for start in tl.range(first, last, BLOCK_N, num_stages=1 if MASKED else None):
            k_tile = load(keys, start, D, BLOCK_N, BLOCK_D, MASKED, DESCRIBED, PRODUCTS)
            scores = product(q_tile, transposed(k_tile, PRODUCTS), PRODUCTS, PRECISION)
            if MASKED:
                columns = start + tl.arange(0, BLOCK_N)
                seen = (columns < n_keys)[None, :]
                if CAUSAL:
                    seen = seen & (columns[None, :] <= rows[:, None])
                scores = tl.where(seen, scores, float("-inf"))
            new_maximum = tl.maximum(maximum, tl.max(scores, 1) * scale_log2)
            p = tl.exp2(scores * scale_log2 - (new_maximum - P_SHIFT)[:, None])
            correction = tl.exp2(maximum - new_maximum)
            total = total * correction + tl.sum(p, 1)
            acc = acc * correction[:, None]
            v_tile = load(values, start, D, BLOCK_N, BLOCK_D, MASKED, DESCRIBED, PRODUCTS)
            acc = add_product(acc, operand(p, v_tile, PRODUCTS), v_tile, PRODUCTS, PRECISION)
            maximum = new_maximum

    acc = acc / total[:, None]
    if PRODUCTS == 3:
        acc *= power_of_two(sizes + 2)
    logsumexp = maximum + tl.log2(total) - P_SHIFT
    if SPLIT:
        part = tl.program_id(1) * (tl.num_programs(0) // tiles) + sequence
        out += tl.cast(part, tl.int64) * n_queries * D
        lse += tl.cast(part, tl.int64) * n_queries
        store_tile(out, acc, first_row, D, 1, n_queries, D, BLOCK_M, BLOCK_D)
    else:
        out = sequence_at(out, strides_out, batch, head)
        lse += tl.cast(sequence, tl.int64) * n_queries
        store_tile(
            out, acc, first_row, strides_out[2], strides_out[3], n_queries, D, BLOCK_M, BLOCK_D
        )
        logsumexp *= LN_2
    tl.store(lse + rows, logsumexp, rows < n_queries)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float | None,
    configuration: Configuration | None = None,
) -> tuple[Tensor, Tensor]:
    """Launch the forward pass.

    q: [b, h, n, d]; k, v: [b, h, m, d], any strides; scale: defaults to 1 / sqrt(d). Returns
    out [b, h, n, d] in q's dtype and, if q is dense, in q's layout, and lse [b, h, n] in float32.
    Raises TypeError or ValueError for unsupported arguments.
    """
    precision = dot_precision(q.dtype)
    planned = plan(form(q), form(k), form(v), causal, scale, precision, configuration)
    if planned is None:
        return forward(*map(addressable, (q, k, v)), causal, scale, configuration)
    return on_device(q.device, planned, q, k, v)


def _prepare(
    x: Sequence[Tensor], lse: Tensor, delta: Tensor, causal: bool, configuration: Configuration
) -> Callable[[], tuple[Tensor, ...]]:
    q, k, v, _ = x
    return lambda: forward(q, k, v, causal, None, configuration)


FORWARD = Kernel("forward", ("out", "lse"), _prepare)


@lru_cache(MOST_PLANS)
def plan(
    q: tuple,
    k: tuple,
    v: tuple,
    causal: bool,
    scale: float | None,
    precision: str,
    configuration: Configuration | None,
) -> "Forward | Attempt | None":
    """The launches for these forms; None if a tensor must be copied first.

    Raises TypeError or ValueError for unsupported arguments.
    """
    forms = [Form(*members) for members in (q, k, v)]
    check_arguments(*forms, causal, scale)
    scale = scale_of(scale, forms[0].shape[-1])
    if not all(each.addressable for each in forms):
        return None
    in_triton = partial(Forward, *forms, causal, scale, precision, configuration)
    if configuration is None and hopper_forward.takes(*forms):
        in_gluon = partial(hopper_forward.Forward, *forms[:2], causal, scale)
        return Attempt("forward", in_gluon, in_triton)
    return in_triton()


class Forward:
    """Launches for one signature: the split into halves, the kernel, combining the chunks."""

    def __init__(
        self,
        q: Form,
        k: Form,
        v: Form,
        causal: bool,
        scale: float,
        precision: str,
        configuration: Configuration | None,
    ):
        batch, heads, n, d = q.shape
        m = k.shape[2]
        c = configuration or choose(FORWARD, causal, q.dtype, n, m, d, batch * heads, q.device)
        self._rows, self._splits = (batch, heads, n), splits_of(m, c.chunk)
        products = products_of(q.dtype)
        self._halves = Halves(q, k, v) if products == 3 else None
        self._combine = Combine(q, self._splits, c.chunk, causal) if self._splits > 1 else None
        read = self._halves.forms if self._halves else (q, k, v)
        is_described = tma_readable(*read)
        self._launch = Launch(
            forward_kernel,
            (triton.cdiv(n, c.block_m) * batch * heads, self._splits),
            {
                "D": d, "BLOCK_M": c.block_m, "BLOCK_N": c.block_n, "BLOCK_D": padded(d),
                "CAUSAL": causal, "TAIL": m % c.block_n != 0, "SPLIT": self._splits > 1,
                "DESCRIBED": is_described, "PRODUCTS": products, "PRECISION": precision,
                "P_SHIFT": SHIFT if products == 3 else 0,
            },
            {"num_warps": c.num_warps, "num_stages": c.num_stages},
            tiles_of(c.block_m, c.block_n, c.block_n) if is_described else (),
        )  # fmt: skip
        self._strides = tuple(form.strides for form in read)
        self._scalars = (batch, heads, n, m, c.chunk, scale * LOG2_E.value)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(q)
        lse = torch.empty(self._rows, dtype=torch.float32, device=q.device)
        parts, parts_lse = out, lse
        if self._combine:
            parts, parts_lse = new_parts(self._splits, q), new_parts(self._splits, lse)
        sizes, read = self._halves(q, k, v) if self._halves else (None, (q, k, v))
        self._launch(*read, sizes, parts, parts_lse, *self._strides, out.stride(), *self._scalars)
        if self._combine:
            self._combine(parts, parts_lse, out, lse)
        return out, lse
