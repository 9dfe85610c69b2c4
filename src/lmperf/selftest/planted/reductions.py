"""Strategies of data parallel training whose reduction of gradients is wrong.

Each function takes a module and returns a wrapper, as a custom strategy does. Ranks that have other
weights, or a step of another size, still train: only a comparison with one process finds them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Gradients in a bucket.
_BUCKET = 8


def averages_over_one_too_many(module):
    """Divide the sum of the gradients by one more than the number of ranks."""
    return _Averaging(module, dist.get_world_size() + 1)


def leaves_out_a_bucket(module):
    """Reduce all buckets of gradients but the last."""
    return _Averaging(module, dist.get_world_size(), left_out=1)


def sums_one_bucket(module):
    """Leave the sum of the ranks in the last bucket."""
    return _Averaging(module, dist.get_world_size(), summed=1)


class _Averaging(nn.Module):
    """Averages gradients in buckets after the backward pass.

    Args:
        divisor: what the sums are divided by.
        left_out: number of buckets at the end that are not reduced.
        summed: number of buckets at the end that are not divided.
    """

    def __init__(self, module: nn.Module, divisor: int, left_out: int = 0, summed: int = 0):
        super().__init__()
        self.module = module
        self._divisor, self._left_out, self._summed = divisor, left_out, summed

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def finish_gradient_synchronization(self) -> None:
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        buckets = [gradients[at : at + _BUCKET] for at in range(0, len(gradients), _BUCKET)]
        number = len(buckets)
        for place, bucket in enumerate(buckets[: number - self._left_out]):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            if place < number - self._summed:
                flat /= self._divisor
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))
