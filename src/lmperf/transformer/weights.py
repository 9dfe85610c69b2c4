"""How far trained weights are from those of a reference, by samples of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BLOCK, _MOST_BLOCKS = 256, 4096


@torch.no_grad()
def sample(tensor: Tensor) -> Tensor:
    """Blocks of a tensor, [blocks, 256], a copy in float32; at most 4,097, the last one included.

    The last block is filled up with zeros. Blocks of a large tensor have equal distances.
    """
    flat = tensor.detach().reshape(-1)
    whole, left = divmod(len(flat), _BLOCK)
    distance = max(1, -(-whole // _MOST_BLOCKS))
    kept = flat[: whole * _BLOCK].view(whole, _BLOCK)[::distance]
    last = flat[whole * _BLOCK :] if left else flat[-_BLOCK:]
    last = torch.nn.functional.pad(last, (0, _BLOCK - len(last)))
    return torch.cat((kept, last[None])).float()


def rms(tensor: Tensor) -> float:
    """The root mean square of a tensor's elements."""
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(tensor.numel())


def error_of(got: Tensor, expected: Tensor, change: Tensor) -> float:
    """Largest error of a block of a sample, relative to the change of the weight.

    max over blocks B of ||got_B - expected_B|| / max(||change_B||, sqrt(mean_B' ||change_B'||^2)).
    """
    wrong = torch.linalg.vector_norm(got.double() - expected.double(), dim=-1)
    norms = torch.linalg.vector_norm(change.double(), dim=-1)
    scale = torch.maximum(norms, norms.square().mean().sqrt())
    ratio = torch.where(wrong == 0, 0.0, wrong / scale)
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max())
