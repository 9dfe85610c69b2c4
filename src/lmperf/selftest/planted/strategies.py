"""Strategies of data parallel training: one reduces wrongly, one only seems to overlap."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn


class _Averaging(nn.Module):
    """Averages the gradients of a model over all ranks after the backward pass, but the first."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def finish_gradient_synchronization(self) -> None:
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        for gradient in gradients[1:]:
            dist.all_reduce(gradient)
            gradient.div_(dist.get_world_size())


def leaves_out_a_gradient(module):
    """Reduces all gradients but the first."""
    return _Averaging(module)


class _InHooks(nn.Module):
    """Reduces each gradient asynchronously in the backward pass, which waits for it at once."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._reduce)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def _reduce(self, parameter: Tensor) -> None:
        dist.all_reduce(parameter.grad, async_op=True).wait()

    def finish_gradient_synchronization(self) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(dist.get_world_size())


def waits_in_hooks(module):
    """Reduces gradients asynchronously in hooks of the backward pass, and waits in each."""
    return _InHooks(module)
