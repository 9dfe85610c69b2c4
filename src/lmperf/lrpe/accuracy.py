"""How far an md_lrpe_cosine may be from its definition, and from the properties it must have.

An error is that of a row relative to the size of the result (`accuracy.blockwise_error`). With u
the unit roundoff of the storage dtype and w = 2^-24 that of float32:

    out         cos and sin are off by at most 3 w each, the product by w; storing rounds by u. A
                row of Out is as long as its row of X, so nothing cancels: u + 8 w.
    dx          the same for two products and a sum, but dX may be shorter than dOut, sqrt(2) times
                on random data and never 4 times over a block of rows: u + 32 w.
    angle       Out of ones in float32 is cos and sin themselves, whatever the storage: w + 8 w.
                In bfloat16 an angle of 65536 taken as a float32 product (off by up to 0.004
                radians) would hide in the rounding of Out; here it does not.
    norm        ||Out| / |X| - 1| <= u + 8 w: cos^2 + sin^2 = 1 at any angle, right or wrong.
    inverse     backward of dOut = Out gives X: two roundings, 2 u (1 + u) + 16 w.
    difference  with one vector at every position, <Out_p, Out_(p + delta)> / |X|^2 is the same for
                all p. Each inner product has the error of two rows, so two of them differ by
                4 (u + 8 w) at most.

Plain PyTorch takes the angle in float32: half a unit in its last place, w times the angle, which
turns the row by as much. It is added for those that declare it, as `rounded_angles`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lmperf.attention.accuracy import UNIT_ROUNDOFF
from lmperf.benchmark import STRICT

FLOAT32 = UNIT_ROUNDOFF["float32"]
NUMERICS = (STRICT, "rounded_angles")


def error_bounds(
    dtype: str, numerics: str = STRICT, largest_angle: float = 0.0
) -> dict[str, float]:
    """The largest error that rounding explains, by name of what is compared.

    dtype: float32, float16 or bfloat16. numerics: what the implementation declares: `strict` is
    exact for large angles, `rounded_angles` takes them in float32. largest_angle: in radians.
    Raises ValueError for other numerics, KeyError for another dtype.
    """
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}, got {numerics!r}")
    angle_error = 0.0 if numerics == STRICT else largest_angle * FLOAT32
    u, turned = UNIT_ROUNDOFF[dtype], 8 * FLOAT32 + angle_error
    return {
        "out": u + turned,
        "dx": u + 4 * turned,
        "angle": FLOAT32 + turned,
        "norm": u + 8 * FLOAT32,
        "inverse": 2 * u * (1 + u) + 16 * FLOAT32,
        "difference": 4 * (u + turned),
    }


@torch.no_grad()
def norm_error(out: Tensor, x: Tensor) -> float:
    """max over tokens of ||out| / |x| - 1|; out [h, t, 2 d], x [h, t, d]; inf if not finite."""
    lengths, expected = (torch.linalg.vector_norm(t.double(), dim=-1) for t in (out, x))
    return _largest((lengths - expected).abs() / expected.clamp_min(torch.finfo(x.dtype).tiny))


@torch.no_grad()
def difference_error(out: Tensor, shape: Sequence[int], extra_tokens: int) -> float:
    """How far inner products of tokens at one difference of indices differ from each other.

    out: [h, extra_tokens + n, 2 d], the encoding of one vector v_h at every position. For the
    differences of about half of every axis, of one step along each, and of both directions at once,
    the spread (max - min) of <Out_p, Out_(p + delta)> over p, relative to |v_h|^2. Returns inf when
    anything is not finite, 0 for a shape with a single token.
    """
    h, _, width = out.shape
    grid = out[:, extra_tokens:].double().reshape(h, *shape, width)
    size = grid.square().sum(-1).flatten(1).amax(1)
    spreads = [0.0 * size]
    for delta in _differences(shape):
        here, there = grid, grid
        for axis, step in enumerate(delta, start=1):
            count = grid.shape[axis] - abs(step)
            here = here.narrow(axis, max(0, -step), count)
            there = there.narrow(axis, max(0, step), count)
        products = (here * there).sum(-1).flatten(1)
        spreads.append((products.amax(1) - products.amin(1)) / size)
    return _largest(torch.stack(spreads))


def _differences(shape: Sequence[int]) -> list[tuple[int, ...]]:
    halves = tuple(length // 2 for length in shape)
    steps = tuple(min(1, length - 1) for length in shape)
    mirrored = tuple(-half if i % 2 else half for i, half in enumerate(halves))
    return list(dict.fromkeys((halves, steps, mirrored)))


def _largest(values: Tensor) -> float:
    return float(values.nan_to_num(nan=math.inf, posinf=math.inf).max())
