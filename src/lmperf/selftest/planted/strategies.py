"""Strategies of data parallel training: one reduces wrongly, one only seems to overlap."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn


class _Wrapper(nn.Module):
    """Calls the model that it wraps."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def gradients(self) -> list[Tensor]:
        return [weight.grad for weight in self.parameters() if weight.grad is not None]


class _Averaging(_Wrapper):
    """Averages the gradients of a model over all ranks after the backward pass, but the first."""

    def finish_gradient_synchronization(self) -> None:
        for gradient in self.gradients()[1:]:
            dist.all_reduce(gradient)
            gradient.div_(dist.get_world_size())


def leaves_out_a_gradient(module):
    """Reduces all gradients but the first."""
    return _Averaging(module)


class _InHooks(_Wrapper):
    """Reduces each gradient asynchronously in the backward pass, which waits for it at once."""

    def __init__(self, module: nn.Module):
        super().__init__(module)
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, parameter: Tensor) -> None:
        dist.all_reduce(parameter.grad, async_op=True).wait()

    def finish_gradient_synchronization(self) -> None:
        for gradient in self.gradients():
            gradient.div_(dist.get_world_size())


def waits_in_hooks(module):
    """Reduces gradients asynchronously in hooks of the backward pass, and waits in each."""
    return _InHooks(module)
