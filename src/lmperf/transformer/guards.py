"""Checks a result's type, shape, dtype and device, and detects changed weights by a digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lmperf.benchmark import WrongResult


def require_plain(
    words: str,
    value: Any,
    shape: Sequence[int],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the value, detached, if it is a plain tensor of this shape, device type and dtype.

    Tensor subclasses are rejected, because they may defer work beyond the timed call.

    Args:
        words: how the error message calls the value, such as "the loss".
        dtype: None accepts any.

    Raises:
        WrongResult: the value is not such a tensor.
    """
    if type(value) is not Tensor:
        raise WrongResult(f"{words}: a {type(value).__name__}, not a torch.Tensor")
    expected = (tuple(shape), device.type, dtype or value.dtype)
    found = (tuple(value.shape), value.device.type, value.dtype)
    if found != expected:
        raise WrongResult(f"{words}: {_described(*found)} instead of {_described(*expected)}")
    return value.detach()


def _described(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


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
