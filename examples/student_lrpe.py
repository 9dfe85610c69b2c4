"""md_lrpe_cosine with the angles of each axis side by side, and no index arithmetic.

    implementations:
      lrpe: { mine: { use: "examples.student_lrpe:lrpe_cosine", numerics: rounded_angles } }

It takes the angles in float32, as plain PyTorch does, and says so.
"""

import math

import torch
from torch import Tensor


def lrpe_cosine(x: Tensor, theta: Tensor, shape: tuple[int, ...], extra_tokens: int = 0) -> Tensor:
    """x [b, h, extra_tokens + n, d], theta [h, e], lengths whose product is n -> [.., 2 d]."""
    indices = torch.meshgrid(*(torch.arange(n, device=x.device) for n in shape), indexing="ij")
    along = [index.flatten()[:, None] * theta.float()[:, None] for index in indices]
    angle = torch.cat(along, dim=-1)[..., : x.shape[-1]]
    extra = angle.new_zeros(len(theta), extra_tokens, x.shape[-1])
    angle = torch.cat([extra, angle.expand(-1, math.prod(shape), -1)], dim=1)
    return torch.cat([x * angle.cos(), x * angle.sin()], dim=-1).to(x.dtype)
