"""md_lrpe_cosine by definition: plain, compiled and float64 versions; its FLOPs and bytes.

Multi-dimensional linearised relative positional encoding in its cosine form (Qin et al. 2023,
"Linearized Relative Positional Encoding", arXiv:2307.09270). The first l tokens are extra tokens
with the angle 0. A later token p has the indices (s_1 ... s_m): p - l unravelled row-major into the
shape (n_1 ... n_m). With theta [h, e],

    Angle[h, p, c] = s_i theta[h, c - (i - 1) e],  i = floor(c / e) + 1;  0 for p < l
    Out = concat(X cos(Angle), X sin(Angle)),      dX = dOut_cos cos(Angle) + dOut_sin sin(Angle)

so that <Out_p, Out_q> = sum_c X_pc X_qc cos(Angle_pc - Angle_qc) depends only on the difference of
the indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from lmperf.dtypes import DTYPES, STORED_DTYPES

BYTES_PER_ELEMENT = {name: DTYPES[name].bytes for name in STORED_DTYPES}


def angles(
    theta: Tensor, shape: Sequence[int], d: int, extra_tokens: int, dtype: torch.dtype
) -> Tensor:
    """Angle [h, extra_tokens + n, d]: the product of index and theta [h, e], in `dtype`."""
    width = theta.shape[1]
    tokens = torch.arange(math.prod(shape), device=theta.device)
    channels = torch.arange(d, device=theta.device)
    angle = theta.new_zeros((), dtype=dtype)
    for axis in range(len(shape)):
        index = tokens // math.prod(shape[axis + 1 :]) % shape[axis]
        here = channels // width == axis
        along = index.to(dtype)[:, None] * theta.to(dtype)[:, None, channels % width]
        angle = torch.where(here, along, angle)
    return torch.nn.functional.pad(angle, (0, 0, extra_tokens, 0))


def lrpe_cosine(x: Tensor, theta: Tensor, shape: Sequence[int], extra_tokens: int = 0) -> Tensor:
    """concat(x cos, x sin) in plain PyTorch, computed in float32.

    x: [b, h, extra_tokens + n, d]; theta: [h, e]; shape: lengths whose product is n. Returns
    [b, h, extra_tokens + n, 2 d] in x's dtype. The angle is a float32 product, the obvious way to
    write it: at 32768, half a unit in the last place is 0.001 radians.
    """
    angle = angles(theta, shape, x.shape[-1], extra_tokens, torch.float32)
    wide = x.float()
    return torch.cat([wide * angle.cos(), wide * angle.sin()], dim=-1).to(x.dtype)


def compiled(x: Tensor, theta: Tensor, shape: Sequence[int], extra_tokens: int = 0) -> Tensor:
    """`lrpe_cosine` through torch.compile, specialised to each shape."""
    return _compiled()(x, theta, shape, extra_tokens)


@cache
def _compiled():
    return torch.compile(lrpe_cosine, dynamic=False, fullgraph=True)


def cosines_float64(
    theta: Tensor, shape: Sequence[int], d: int, extra_tokens: int
) -> tuple[Tensor, Tensor]:
    """cos and sin of every angle [h, extra_tokens + n, d] in float64."""
    angle = angles(theta, shape, d, extra_tokens, torch.float64)
    return angle.cos(), angle.sin()


def encoded_float64(x: Tensor, cosines: tuple[Tensor, Tensor]) -> Tensor:
    """The output [h, t, 2 d] of one sequence x [h, t, d], from cos and sin of its angles."""
    return torch.cat([x.double() * part for part in cosines], dim=-1)


def turned_back_float64(gradient: Tensor, cosines: tuple[Tensor, Tensor]) -> Tensor:
    """dX [h, t, d] of one sequence from dOut [h, t, 2 d], by cos and sin of its angles."""
    parts = gradient.double().chunk(2, dim=-1)
    return sum(part * angle for part, angle in zip(parts, cosines, strict=True))


def largest_angle(theta: Tensor, shape: Sequence[int]) -> float:
    """The largest angle of any token and channel, in radians."""
    return float(theta.abs().max()) * (max(shape) - 1)


def flops(batch: int, heads: int, tokens: int, d: int, phase: str = "forward") -> int:
    """FLOPs of the products with x or dOut and their sums; computing the angles is not counted.

    Forward: 2 per element of x. Backward: 3. Raises KeyError for any other phase.
    """
    return {"forward": 2, "backward": 3}[phase] * batch * heads * tokens * d


def bytes_moved(batch: int, heads: int, tokens: int, d: int, dtype: str) -> int:
    """The fewest bytes that a forward or backward pass can move.

    Forward reads x and writes Out; backward reads dOut and writes dx; Out and dOut have twice the
    size of x. theta, 4 h e bytes, is not counted. dtype: float32, float16 or bfloat16; else
    KeyError.
    """
    return 3 * batch * heads * tokens * d * BYTES_PER_ELEMENT[dtype]
