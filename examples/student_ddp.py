"""Data parallel training as the courses ask for it: gradients are all-reduced by hooks.

In `config/config.yaml`:

    implementations:
      distributed: {mine: "examples.student_ddp:DDP"}
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class DDP(nn.Module):
    """Wraps a module; its gradients are averages over the ranks after the backward pass."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        self.handles: list[dist.Work] = []
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.reduce)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def reduce(self, parameter: torch.Tensor) -> None:
        parameter.grad /= dist.get_world_size()
        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))

    def finish_gradient_synchronization(self) -> None:
        """Wait for all reductions, before the optimizer's step."""
        for handle in self.handles:
            handle.wait()
        self.handles.clear()
