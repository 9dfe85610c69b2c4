"""Wrappers of data parallel training that seem to overlap communication and do not.

Each takes a model, the same on every rank, and returns one whose gradients are averaged after
`finish_gradient_synchronization`, as a user's wrapper does.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn


class _Wrapper(nn.Module):
    """Averages the gradients of a model over all ranks, after the backward pass."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)

    def gradients(self) -> list[Tensor]:
        return [one.grad for one in self.module.parameters() if one.grad is not None]

    def finish_gradient_synchronization(self) -> None:
        begun = [dist.all_reduce(one, async_op=True) for one in self.gradients()]
        for work in begun:
            work.wait()
        self.divide()

    def divide(self) -> None:
        for gradient in self.gradients():
            gradient.div_(dist.get_world_size())


class _WaitsInHooks(_Wrapper):
    """Reduces each gradient in the backward pass, which waits for it."""

    def __init__(self, module: nn.Module):
        super().__init__(module)
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, parameter: Tensor) -> None:
        dist.all_reduce(parameter.grad, async_op=True).wait()

    def finish_gradient_synchronization(self) -> None:
        self.divide()


def waits_in_hooks(module):
    """Reduces gradients asynchronously in hooks of the backward pass, and waits in each."""
    return _WaitsInHooks(module)


def begins_after_the_backward(module):
    """Begins all reductions asynchronously, but only after the backward pass."""
    return _Wrapper(module)
