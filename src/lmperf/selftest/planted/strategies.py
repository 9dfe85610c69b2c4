"""Strategies of data parallel training: one reduces wrongly, one only seems to overlap."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn


class _Averaging(nn.Module):
    """Averages the gradients of a model over all ranks, after the backward pass.

    left_out: number of gradients that are not reduced.
    """

    def __init__(self, module: nn.Module, left_out: int = 0):
        super().__init__()
        self.module, self._left_out = module, left_out

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def finish_gradient_synchronization(self) -> None:
        gradients = [one.grad for one in self.parameters() if one.grad is not None]
        for gradient in gradients[self._left_out :]:
            dist.all_reduce(gradient)
            gradient.div_(dist.get_world_size())


def leaves_out_a_gradient(module):
    """Reduces all gradients but the first."""
    return _Averaging(module, left_out=1)


def leaves_out_none(module):
    return _Averaging(module)


class _InHooks(nn.Module):
    """Begins to reduce each gradient in the backward pass.

    waits: whether the backward pass waits until the gradient is reduced.
    """

    def __init__(self, module: nn.Module, waits: bool):
        super().__init__()
        self.module, self._waits, self._begun = module, waits, []
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._reduce)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def _reduce(self, parameter: Tensor) -> None:
        work = dist.all_reduce(parameter.grad, async_op=True)
        if self._waits:
            work.wait()
        self._begun.append((work, parameter.grad))

    def finish_gradient_synchronization(self) -> None:
        for work, gradient in self._begun:
            work.wait()
            gradient.div_(dist.get_world_size())
        self._begun.clear()


def waits_in_hooks(module):
    """Reduces gradients asynchronously in hooks of the backward pass, and waits in each."""
    return _InHooks(module, waits=True)


def waits_at_the_end(module):
    return _InHooks(module, waits=False)
