"""Fully sharded data parallel training: each rank keeps rows of every Linear and Embedding."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cs336_basics.model import Embedding, Linear


class FSDP(nn.Module):
    """Gathers a layer's weight for its forward and its backward pass, and reduces its gradient.

    The weights of other layers are on every rank.

    compute_dtype: in which weights of Linear are gathered; None: as they are.
    """

    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None):
        super().__init__()
        self.module, self.compute_dtype = module, compute_dtype
        self.ranks, self.handles = dist.get_world_size(), []
        self.shards: dict[nn.Parameter, Tensor] = {}
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
        for layer in module.modules():
            if isinstance(layer, (Linear, Embedding)):
                self._shard(layer)
        for parameter in module.parameters():
            if parameter not in self.shards:
                parameter.register_post_accumulate_grad_hook(self._reduce)

    def forward(self, *inputs, **named) -> Tensor:
        return self.module(*inputs, **named)

    def _shard(self, layer: nn.Module) -> None:
        weight = layer.weight
        if len(weight) % self.ranks:
            raise ValueError(f"{len(weight)} rows do not split over {self.ranks} ranks")
        self.shards[weight] = weight.data.chunk(self.ranks)[dist.get_rank()].clone()
        weight.data = self.shards[weight]
        dtype = self.compute_dtype if isinstance(layer, Linear) else None
        layer.register_forward_pre_hook(lambda *_: self._gather(weight, dtype))
        layer.register_forward_hook(lambda *_: self._free(weight))
        layer.register_full_backward_pre_hook(lambda *_: self._gather(weight, dtype))
        weight.register_post_accumulate_grad_hook(self._reduce_scatter)

    def _whole(self, shard: Tensor) -> Tensor:
        whole = shard.new_empty(self.ranks * len(shard), *shard.shape[1:])
        dist.all_gather_into_tensor(whole, shard)
        return whole

    def _gather(self, weight: nn.Parameter, dtype: torch.dtype | None) -> None:
        shard = self.shards[weight]
        weight.data = self._whole(shard.to(dtype or shard.dtype)).to(shard.dtype)

    def _free(self, weight: nn.Parameter) -> None:
        weight.data = self.shards[weight]

    def _reduce(self, parameter: nn.Parameter) -> None:
        parameter.grad /= self.ranks
        self.handles.append((dist.all_reduce(parameter.grad, async_op=True), parameter, None))

    def _reduce_scatter(self, weight: nn.Parameter) -> None:
        whole, weight.grad = weight.grad / self.ranks, None
        self._free(weight)
        shard = torch.empty_like(weight)
        handle = dist.reduce_scatter_tensor(shard, whole, async_op=True)
        self.handles.append((handle, weight, shard))

    def finish_gradient_synchronization(self) -> None:
        """Wait for all reductions, before the optimizer's step."""
        for handle, parameter, shard in self.handles:
            handle.wait()
            if shard is not None:
                parameter.grad = shard
        self.handles.clear()

    def gather_full_params(self) -> dict[str, Tensor]:
        """Name -> whole weight, of each parameter of the module."""
        return {
            name: self._whole(parameter.data) if parameter in self.shards else parameter.data
            for name, parameter in self.module.named_parameters()
        }
