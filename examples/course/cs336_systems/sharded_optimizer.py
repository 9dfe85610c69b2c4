"""An optimizer of which each rank updates, and keeps the state of, a part of the parameters."""

from typing import Any

import torch
import torch.distributed as dist


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls: type[torch.optim.Optimizer], **options: Any):
        self.optimizer_cls, self.options = optimizer_cls, options
        self.local, self.owners, self.sizes = None, {}, [0] * dist.get_world_size()
        super().__init__(params, options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Give each parameter to the rank that has the fewest elements so far."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for parameter in group["params"]:
            owner = self.sizes.index(min(self.sizes))
            self.owners[parameter], self.sizes[owner] = owner, self.sizes[owner] + parameter.numel()
        mine = [one for one in group["params"] if self.owners[one] == dist.get_rank()]
        if not mine:
            return
        if self.local is None:
            self.local = self.optimizer_cls(mine, **self.options)
        else:
            self.local.add_param_group({**group, "params": mine})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        if self.local is not None:
            self.local.step()
        handles = [
            dist.broadcast(parameter.data, src=owner, async_op=True)
            for parameter, owner in self.owners.items()
        ]
        for handle in handles:
            handle.wait()
