"""Detects changed weights by a digest."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def digest(model: nn.Module) -> Tensor:
    """A digest [tensors]: for each parameter and buffer, the sum of its elements' bits.

    The bits of an element are read as an integer.
    """
    tensors = (*model.parameters(), *model.buffers())
    return torch.stack([integers(tensor).sum() for tensor in tensors])


def integers(tensor: Tensor) -> Tensor:
    """The bits of a tensor's elements as integers, [integers]; a view of a contiguous tensor."""
    return tensor.flatten().view(torch.int32 if tensor.itemsize % 4 == 0 else torch.uint8)
