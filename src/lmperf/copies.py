"""Copies between dtypes, as fast as PyTorch has them: a yardstick for what memory can move."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def fastest_copy(target: Tensor, source: Tensor) -> Callable[[], Tensor]:
    """The call that copies source into target, both of one shape.

    On a GPU one that widens is compiled: copy_ alone reaches half of the rate then (2,120 GB/s of
    4,140 for bfloat16 to float32, NVIDIA H200, torch 2.11).
    """
    if target.is_cuda and target.itemsize > source.itemsize:
        compiled = torch.compile(lambda target, source: target.copy_(source), fullgraph=True)
        return lambda: compiled(target, source)
    return lambda: target.copy_(source)
