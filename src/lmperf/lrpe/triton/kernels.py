"""The two kernels of md_lrpe_cosine and their launches (Qin et al. 2023, arXiv:2307.09270, cosine
form; the equations are in `lmperf.lrpe.reference`).

Algorithm. The angle depends on head, token and channel, but not on the sequence of the batch. So a
program owns a block of tokens of one head. It unravels their positions, computes cos and sin of the
tile's angles once, keeps both in registers and loops over the batch: load a tile of X, multiply,
store two tiles of Out (backward: load two of dOut, store one of dX). If heads x blocks are too few
to fill the device, the batch is split among programs, each of which computes the angles.

Bytes: 3 b h t d elements in either direction for t tokens, each moved once, 16 bytes per access.
FLOPs: 2 per element forward, 3 backward. Also about 45 instructions per angle, which is 4 per
element at a batch of 12, and 5 per element in the loop. While the 6 bytes of an element in bfloat16
are moved, an H200 has time for about 40 instructions: the kernels are memory-bound.

Errors: cos and sin are within 3 * 2^-24 at any length (`angles.cosine_and_sine`), products and sum
are float32, and the result is rounded once to the storage dtype of unit roundoff u. The relative
error of a row of Out is at most u + 8 * 2^-24, of dX u + 32 * 2^-24 (`lmperf.lrpe.accuracy`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.lrpe.triton.angles import odd, tile_of_angles
from lmperf.lrpe.triton.launch import (
    COUNTS,
    Configuration,
    aligned_strides,
    configuration,
    readable,
    shares,
)


@triton.jit
def _place(tokens, heads, batch, share, BLOCK_T: tl.constexpr):
    """The first token, the head, and the range begin ... end of sequences of this program."""
    blocks = tl.cdiv(tokens, BLOCK_T)
    program = tl.program_id(0)
    first = program % blocks * BLOCK_T
    head = program // blocks % heads
    begin = program // (blocks * heads) * share
    return first, head, begin, tl.minimum(begin + share, batch)


@triton.jit
def _row_offsets(WIDTH, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    """Offsets of the elements of a tile [BLOCK_T, BLOCK_D] whose rows are WIDTH apart."""
    return tl.arange(0, BLOCK_T)[:, None] * WIDTH + tl.arange(0, BLOCK_D)[None, :]


@triton.jit
def _within(first, tokens, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    """The mask of the tokens and channels of a tile that lie inside the tensor."""
    rows = first + tl.arange(0, BLOCK_T) < tokens
    if D == BLOCK_D:
        return rows[:, None]
    else:
        return rows[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]


@triton.jit(do_not_specialize=COUNTS)
def forward_kernel(
    x,
    theta,
    out,
    angles,
    odd_lengths,
    stride_b,
    stride_h,
    stride_t,
    batch,
    heads,
    tokens,
    extra_tokens,
    share,
    ALIGNMENT: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    AXES: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CACHE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out = (x cos, x sin) of one tile of tokens, for `share` sequences of the batch.

    x [batch, heads, tokens, D], strides in units of ALIGNMENT; out [.., 2 D], contiguous.
    """
    first, head, begin, end = _place(tokens, heads, batch, share, BLOCK_T)
    cosine, sine = tile_of_angles(
        theta + head * WIDTH, odd_lengths, first, extra_tokens, D, WIDTH, AXES, BLOCK_T, BLOCK_D
    )
    within = _within(first, tokens, D, BLOCK_T, BLOCK_D)
    token = tl.cast(first, tl.int64)
    if CACHE:  # noqa: SIM102 - a compile-time condition, unlike the next one
        if begin == 0:
            kept = (tl.cast(head, tl.int64) * tokens + token) * D
            cosines = angles + kept + _row_offsets(D, BLOCK_T, BLOCK_D)
            tl.store(cosines, cosine, within)
            tl.store(cosines + tl.cast(heads, tl.int64) * tokens * D, sine, within)
    x += (tl.cast(head, tl.int64) * stride_h + token * stride_t) * ALIGNMENT
    source = _row_offsets(stride_t * ALIGNMENT, BLOCK_T, BLOCK_D)
    target = _row_offsets(2 * D, BLOCK_T, BLOCK_D)
    ELEMENT: tl.constexpr = out.dtype.element_ty
    for b in tl.range(begin, end, num_stages=STAGES):
        sequence = tl.cast(b, tl.int64)
        tile = tl.load(x + sequence * stride_b * ALIGNMENT + source, within, 0.0).to(tl.float32)
        rows = out + ((sequence * heads + head) * tokens + token) * (2 * D)
        tl.store(rows + target, (tile * cosine).to(ELEMENT), within)
        tl.store(rows + (target + D), (tile * sine).to(ELEMENT), within)


@triton.jit(do_not_specialize=COUNTS)
def backward_kernel(
    grad_out,
    theta,
    dx,
    angles,
    odd_lengths,
    stride_b,
    stride_h,
    stride_t,
    batch,
    heads,
    tokens,
    extra_tokens,
    share,
    ALIGNMENT: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    AXES: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CACHE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """dx = grad_cos cos + grad_sin sin of one tile of tokens, for `share` sequences of the batch.

    grad_out [batch, heads, tokens, 2 D], strides in units of ALIGNMENT; dx [.., D], contiguous.
    """
    first, head, begin, end = _place(tokens, heads, batch, share, BLOCK_T)
    within = _within(first, tokens, D, BLOCK_T, BLOCK_D)
    token = tl.cast(first, tl.int64)
    target = _row_offsets(D, BLOCK_T, BLOCK_D)
    if CACHE:
        kept = (tl.cast(head, tl.int64) * tokens + token) * D
        cosines = angles + kept + target
        cosine = tl.load(cosines, within, 0.0)
        sine = tl.load(cosines + tl.cast(heads, tl.int64) * tokens * D, within, 0.0)
    else:
        cosine, sine = tile_of_angles(
            theta + head * WIDTH, odd_lengths, first, extra_tokens, D, WIDTH, AXES, BLOCK_T, BLOCK_D
        )
    grad_out += (tl.cast(head, tl.int64) * stride_h + token * stride_t) * ALIGNMENT
    source = _row_offsets(stride_t * ALIGNMENT, BLOCK_T, BLOCK_D)
    for b in tl.range(begin, end, num_stages=STAGES):
        sequence = tl.cast(b, tl.int64)
        rows = grad_out + sequence * stride_b * ALIGNMENT
        grad_cos = tl.load(rows + source, within, 0.0).to(tl.float32)
        grad_sin = tl.load(rows + (source + D), within, 0.0).to(tl.float32)
        tile = grad_cos * cosine + grad_sin * sine
        rows = dx + ((sequence * heads + head) * tokens + token) * D
        tl.store(rows + target, tile.to(dx.dtype.element_ty), within)


def forward(
    x: Tensor,
    theta: Tensor,
    shape: tuple[int, ...],
    extra_tokens: int,
    cache_angles: bool,
    chosen: Configuration | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Launch the forward kernel.

    x: [b, h, l + n, d]; theta: [h, e]; arguments as checked by `lrpe_cosine`. Returns out
    [b, h, l + n, 2 d] in x's dtype and, with cache_angles, cos and sin [2, h, l + n, d] in float32.
    """
    batch, heads, tokens, d = x.shape
    out = x.new_empty((batch, heads, tokens, 2 * d))
    angles = x.new_empty((2, heads, tokens, d), dtype=torch.float32) if cache_angles else None
    _launch(forward_kernel, x, theta, out, angles, d, shape, extra_tokens, chosen)
    return out, angles


def backward(
    grad_out: Tensor,
    theta: Tensor | None,
    angles: Tensor | None,
    shape: tuple[int, ...],
    extra_tokens: int,
    chosen: Configuration | None = None,
) -> Tensor:
    """Launch the backward kernel.

    grad_out: [b, h, l + n, 2 d]; either theta [h, e] or the angles that `forward` returned.
    Returns dx [b, h, l + n, d] in the dtype of grad_out.
    """
    batch, heads, tokens, width = grad_out.shape
    dx = grad_out.new_empty((batch, heads, tokens, width // 2))
    _launch(backward_kernel, grad_out, theta, dx, angles, width // 2, shape, extra_tokens, chosen)
    return dx


def _launch(
    kernel,
    source: Tensor,
    theta: Tensor | None,
    target: Tensor,
    angles: Tensor | None,
    d: int,
    shape: tuple[int, ...],
    extra_tokens: int,
    chosen: Configuration | None,
) -> None:
    source, theta = readable(source), None if theta is None else theta.contiguous()
    batch, heads, tokens, _ = source.shape
    c = chosen or configuration(d)
    tiles = heads * -(-tokens // c.block_t)
    parts, share = shares(batch, tiles, source.device)
    alignment, strides = aligned_strides(source)
    with torch.cuda.device_of(source):
        kernel[(tiles * parts,)](
            source, theta, target, angles, odd(shape), *strides,
            batch, heads, tokens, extra_tokens, share,
            ALIGNMENT=alignment, D=d, WIDTH=1 if theta is None else theta.shape[1],
            AXES=len(shape), BLOCK_T=c.block_t, BLOCK_D=triton.next_power_of_2(d),
            CACHE=angles is not None, STAGES=c.stages, num_warps=c.num_warps,
        )  # fmt: skip
