"""Weights of a unit in one flat tensor, of which each rank keeps a part in float32."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmperf.distributed.communication import (
    all_gather_flat,
    average_op,
    divided,
    offsets_of,
    reduce_scatter_flat,
    weak_hook,
)

# (module, attribute, parameter): where a weight is used.
Slot = tuple[nn.Module, str, nn.Parameter]


class FlatShard:
    """The weights of some modules: a master shard on each rank, gathered in whole for use.

    The modules' parameters become plain tensors, views of a flat tensor whose storage is empty
    except between `gather` and `free`. Tensors that autograd saves are views of the same storage:
    gathering it again gives them their contents back. Gradients are averaged in float32.

    Attributes:
        master: float32 [elements / ranks], the parameter that an optimizer updates.

    Args:
        slots: where the weights are used; all of one dtype and device.
        dtype: of the gathered weights, and so of the gradients that autograd computes.
        reduced: called when the gradients of all weights are complete.
    """

    def __init__(self, slots: list[Slot], dtype: torch.dtype, reduced: Callable[[FlatShard], None]):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        shapes = [parameter.shape for _, _, parameter in slots]
        self._offsets, length = offsets_of([shape.numel() for shape in shapes], ranks)
        self._shapes = shapes
        self._has_gaps = length > sum(shape.numel() for shape in shapes)
        device = slots[0][2].device
        whole = torch.zeros(length, dtype=torch.float32, device=device)
        for view, (_, _, parameter) in zip(self._views(whole), slots, strict=True):
            view.copy_(parameter.detach())
        self.master = nn.Parameter(whole.view(ranks, -1)[rank].clone())
        self._full = torch.empty(length, dtype=dtype, device=device)
        self._mine = self._full.view(ranks, -1)[rank]
        self._bytes = self._full.untyped_storage().nbytes()
        # A second tensor of the same storage, with a version of its own: gathering is no change
        # of what autograd has saved.
        self.weights = [view.requires_grad_() for view in self._views(self._full.data)]
        for (module, name, _), weight in zip(slots, self.weights, strict=True):
            delattr(module, name)
            setattr(module, name, weight)
        for weight in self.weights:
            weight.register_post_accumulate_grad_hook(weak_hook(self._ready))
        self._notify = reduced
        self._left = len(slots)
        self._gathering: dist.Work | None = None
        self._scatter: tuple[dist.Work, Tensor, Tensor] | None = None
        self.is_gathered = True
        self.free()

    def _views(self, flat: Tensor) -> list[Tensor]:
        return [
            flat[offset : offset + shape.numel()].view(shape)
            for offset, shape in zip(self._offsets, self._shapes, strict=True)
        ]

    @torch.no_grad()
    def gather(self) -> None:
        """Start to gather the weights, unless they are there."""
        if self.is_gathered:
            return
        self._full.untyped_storage().resize_(self._bytes)
        self._mine.copy_(self.master)
        self._gathering = all_gather_flat(self._full, self._mine, async_op=True)
        self.is_gathered = True

    def wait(self) -> None:
        """Wait until the gathered weights are there."""
        if self._gathering is not None:
            self._gathering.wait()
            self._gathering = None

    def free(self) -> None:
        """Free the gathered weights; they must not be used before they are gathered again."""
        if self.is_gathered:
            self.wait()
            self._full.untyped_storage().resize_(0)
            self.is_gathered = False

    def _ready(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._notify(self)

    @property
    def is_incomplete(self) -> bool:
        """Whether gradients of some weights are missing since `finish`."""
        return self._left > 0

    @torch.no_grad()
    def reduce(self) -> None:
        """Start to average the gradients over the ranks; frees them and the gathered weights."""
        make = torch.zeros if self._has_gaps or self.is_incomplete else torch.empty
        whole = make(len(self._full), dtype=torch.float32, device=self._full.device)
        pairs = [
            (view, weight.grad)
            for view, weight in zip(self._views(whole), self.weights, strict=True)
            if weight.grad is not None
        ]
        if pairs:
            torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))
        for weight in self.weights:
            weight.grad = None
        self.free()
        part = torch.empty(len(self._mine), dtype=torch.float32, device=whole.device)
        work = reduce_scatter_flat(part, whole, average_op(), async_op=True)
        self._scatter = work, part, whole
        self._left = 0

    @torch.no_grad()
    def finish(self) -> None:
        """Wait for the averaged gradients and add them to those of the master shard."""
        if self._scatter is not None:
            work, part, _ = self._scatter
            work.wait()
            divided(part)
            self.master.grad = part if self.master.grad is None else self.master.grad + part
            self._scatter = None

    def expect(self) -> None:
        """Expect the gradients of another backward pass."""
        self._left = len(self.weights)

    @torch.no_grad()
    def full(self, shard: Tensor) -> list[Tensor]:
        """Gather a shard like `master` on all ranks; returns a tensor for each weight."""
        whole = torch.empty(len(self._full), dtype=shard.dtype, device=shard.device)
        all_gather_flat(whole, shard.detach())
        return self._views(whole)
