"""Error bounds of md_lrpe_cosine: against its definition, and for properties that it must have.

The error of a row is relative to the size of the result (`attention.accuracy.blockwise_error`).
With u the unit roundoff of the storage dtype and w = 2^-24 that of float32:

    out         cos and sin each have an error of at most 3 w, the product adds w, storing u. A row
                of Out has the norm of its row of X, so nothing cancels: u + 8 w.
    dx          the same for two products and a sum, but the norm of dX may be smaller than that of
                dOut: by sqrt(2) on random data, and never by 4 over a block of rows: u + 32 w.
    angle       With X = 1 in float32, Out is cos and sin themselves, for every storage dtype:
                w + 8 w. In bfloat16 the error of an angle of 65536 computed in float32 (up to 0.004
                radians) would be hidden by the rounding of Out; here it is not.
    norm        ||Out| / |X| - 1| <= u + 8 w, as cos^2 + sin^2 = 1 even for a wrong angle.
    inverse     The backward pass of dOut = Out gives X: rounded twice, 2 u (1 + u) + 16 w.
    difference  With the same vector at every position, <Out_p, Out_(p + delta)> / |X|^2 is the same
                for all p. An inner product has the error of two rows, so two of them differ by at
                most 4 (u + 8 w).

Plain PyTorch computes the angle in float32, with a relative error of w: the row is rotated by w
times the angle. The bounds of implementations that declare `rounded_angles` include this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lmperf.attention.accuracy import UNIT_ROUNDOFF
from lmperf.benchmark import STRICT

FLOAT32 = UNIT_ROUNDOFF["float32"]
TOLERANCES = (STRICT, "rounded_angles")


def error_bounds(
    dtype: str, tolerance: str = STRICT, largest_angle: float = 0.0
) -> dict[str, float]:
    """The largest value that rounding causes of each error listed in the module docstring.

    dtype: float32, float16 or bfloat16. tolerance: what the implementation declares: `strict` if
    large angles are exact, `rounded_angles` if they are computed in float32. largest_angle: in
    radians. Raises ValueError for any other tolerance, KeyError for an unknown dtype.
    """
    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance must be one of {', '.join(TOLERANCES)}, got {tolerance!r}")
    angle_error = 0.0 if tolerance == STRICT else largest_angle * FLOAT32
    u, rotation = UNIT_ROUNDOFF[dtype], 8 * FLOAT32 + angle_error
    return {
        "out": u + rotation,
        "dx": u + 4 * rotation,
        "angle": FLOAT32 + rotation,
        "norm": u + 8 * FLOAT32,
        "inverse": 2 * u * (1 + u) + 16 * FLOAT32,
        "difference": 4 * (u + rotation),
    }


@torch.no_grad()
def norm_error(out: Tensor, x: Tensor) -> float:
    """max over tokens of ||out| / |x| - 1| for out [h, t, 2 d], x [h, t, d]; inf if not finite."""
    lengths, expected = (torch.linalg.vector_norm(t.double(), dim=-1) for t in (out, x))
    return _largest((lengths - expected).abs() / expected.clamp_min(torch.finfo(x.dtype).tiny))


@torch.no_grad()
def difference_error(out: Tensor, shape: Sequence[int], extra_tokens: int) -> float:
    """Largest spread of inner products of tokens whose positions differ by the same delta.

    out: [h, extra_tokens + n, 2 d], the encoding of one vector v_h at every position. The spread is
    max - min over p of <Out_p, Out_(p + delta)>, relative to |v_h|^2. delta is about half of every
    axis, one step along every axis, and half of every axis with alternating signs. Returns inf if
    any element is not finite, 0 for a shape with a single token.
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
