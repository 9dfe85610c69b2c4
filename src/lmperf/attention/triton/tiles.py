"""Tiles [rows, d]: loading, multiplying and storing.

A tile of an operand is a tuple. For float16, bfloat16 and TF32 it has one member. A float32 operand
is two float16 halves (`halves.py`), x = hi + lo, and a product is the sum of three matmuls,

    a b = a_hi b_hi + (a_hi b_lo + a_lo b_hi) + O(2^-22 |a| |b|),

the small ones first. PRODUCTS is the number of matmuls: 1 or 3.
"""

import torch
import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

# Triton does not specialise kernels to these: one compiled kernel serves every length and number of
# heads.
LENGTHS = ("batches", "heads", "n_queries", "n_keys", "chunk")


@triton.jit
def load_tile(
    x,
    strides,
    batch,
    head,
    start,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """Load rows start ... start + BLOCK of x[batch, head], [n, D], as [BLOCK, BLOCK_D].

    Elements outside are zero. x is a pointer, or with DESCRIBED a TMA descriptor.
    """
    if DESCRIBED:
        return x.load([batch, head, start, 0]).reshape(BLOCK, BLOCK_D)
    else:
        rows = tl.arange(0, BLOCK)
        columns = tl.arange(0, BLOCK_D)
        first = sequence_at(x, strides, batch, head) + tl.cast(start, tl.int64) * strides[2]
        pointers = first + (rows[:, None] * strides[2] + columns[None, :] * strides[3])
        if MASKED:
            return tl.load(pointers, (rows[:, None] < n - start) & (columns[None, :] < D), 0.0)
        elif D < BLOCK_D:
            return tl.load(pointers, (columns < D)[None, :], 0.0)
        else:
            return tl.load(pointers)


@triton.jit
def load(
    source,
    start,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr,
    DESCRIBED: tl.constexpr,
    PRODUCTS: tl.constexpr,
):
    """Load a tile of an operand; with PRODUCTS = 3 its high and low half.

    source: (x, strides, batch, head, n, batches), as in `load_tile`. The low half is stored
    `batches` batches after the high one.
    """
    x, strides, batch, head, n, batches = source
    tile = load_tile(
        x, strides, batch, head, start, n, D, BLOCK, BLOCK_D, MASKED, DESCRIBED
    )  # fmt: skip
    if PRODUCTS == 3:
        second = load_tile(
            x, strides, batch + batches, head, start, n, D, BLOCK, BLOCK_D, MASKED, DESCRIBED
        )  # fmt: skip
        return (tile, second)
    else:
        return (tile,)


@triton.jit
def store_tile(
    base,
    tile,
    start,
    stride_row,
    stride_column,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Store [BLOCK, BLOCK_D] to rows from `start` on of base [n, D], masked, in base's dtype."""
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_D)
    first = base + tl.cast(start, tl.int64) * stride_row
    pointers = first + (rows[:, None] * stride_row + columns[None, :] * stride_column)
    mask = (rows[:, None] < n - start) & (columns[None, :] < D)
    tl.store(pointers, tile.to(base.dtype.element_ty), mask)


@triton.jit
def sequence_at(base, strides, batch, head):
    """Pointer to [n, d] of one batch and head of [batch, heads, n, d]."""
    return base + tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]


@triton.jit
def transposed(a, PRODUCTS: tl.constexpr):
    if PRODUCTS == 3:
        return (tl.trans(a[0]), tl.trans(a[1]))
    else:
        return (tl.trans(a[0]),)


@triton.jit
def product(a, b, PRODUCTS: tl.constexpr, PRECISION: tl.constexpr):
    """The matrix product a b in float32, of operands [m, k] and [k, n]."""
    if PRODUCTS == 3:
        small = tl.dot(a[0], b[1], tl.dot(a[1], b[0]))
        return tl.dot(a[0], b[0], small)
    else:
        return tl.dot(a[0], b[0], input_precision=PRECISION)


@triton.jit
def add_product(acc, a, b, PRODUCTS: tl.constexpr, PRECISION: tl.constexpr):
    """acc + a b. Tensor cores truncate when they accumulate; a separate addition rounds.

    Over a sequence the truncations would add up to 45 u at n = 512 already. So with PRODUCTS = 3
    the tensor cores accumulate within a tile only.
    """
    if PRODUCTS == 3:
        return acc + product(a, b, PRODUCTS, PRECISION)
    else:
        return tl.dot(a[0], b[0], acc, input_precision=PRECISION)


@triton.jit
def operand(x, like, PRODUCTS: tl.constexpr):
    """A float32 result converted to an operand of another product, in the dtype of `like`."""
    high = x.to(like[0].dtype)
    if PRODUCTS == 3:
        return (high, (x - high.to(tl.float32)).to(like[0].dtype))
    else:
        return (high,)


def padded(d: int) -> int:
    """The width of tiles for head width d: a power of two that tl.dot accepts."""
    return max(16, triton.next_power_of_2(d))


def dot_precision(dtype: torch.dtype) -> str:
    """How tl.dot multiplies float32: "tf32" if torch allows it, else "ieee"."""
    if dtype != torch.float32 or INTERPRETED:
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
