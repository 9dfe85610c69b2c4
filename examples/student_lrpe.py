"""md_lrpe_cosine with the angles of all axes concatenated, without index arithmetic.

    implementations:
      lrpe: { mine: { use: "examples.student_lrpe:lrpe_cosine", tolerance: rounded_angles } }

It computes angles in float32, like plain PyTorch, and declares that tolerance.
"""

import math

import torch
from torch import Tensor


def lrpe_cosine(x: Tensor, theta: Tensor, shape: tuple[int, ...], extra_tokens: int = 0) -> Tensor:
    """x [b, h, extra_tokens + n, d], theta [h, e] -> [b, h, extra_tokens + n, 2 d].

    The product of the lengths in `shape` is n.
    """
    indices = torch.meshgrid(*(torch.arange(n, device=x.device) for n in shape), indexing="ij")
    along = [index.flatten()[:, None] * theta.float()[:, None] for index in indices]
    angle = torch.cat(along, dim=-1)[..., : x.shape[-1]]
    extra = angle.new_zeros(len(theta), extra_tokens, x.shape[-1])
    angle = torch.cat([extra, angle.expand(-1, math.prod(shape), -1)], dim=1)
    return torch.cat([x * angle.cos(), x * angle.sin()], dim=-1).to(x.dtype)
