"""Data parallel training: all-reduces of single gradients, and of buckets of them."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors as flatten
from torch._utils import _unflatten_dense_tensors as unflatten


class DDPIndividualParameters(nn.Module):
    """Averages each gradient over the ranks as soon as the backward pass has it."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module, self.handles = module, []
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._reduce)

    def forward(self, *inputs, **named) -> Tensor:
        return self.module(*inputs, **named)

    def _reduce(self, parameter: nn.Parameter) -> None:
        parameter.grad /= dist.get_world_size()
        self.handles.append(dist.all_reduce(parameter.grad, async_op=True))

    def finish_gradient_synchronization(self) -> None:
        """Wait for all all-reduces, before the optimizer's step."""
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


class DDPBucketed(nn.Module):
    """Averages buckets of gradients, filled in the order of the backward pass."""

    def __init__(self, module: nn.Module, bucket_size_mb: float):
        super().__init__()
        self.module, self.buckets, self.handles = module, [[]], []
        size, most = 0, bucket_size_mb * 1e6
        for parameter in reversed([one for one in module.parameters() if one.requires_grad]):
            if self.buckets[-1] and size + parameter.nbytes > most:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(parameter)
            size += parameter.nbytes
        for number, bucket in enumerate(self.buckets):
            for parameter in bucket:
                dist.broadcast(parameter.data, src=0)
                parameter.register_post_accumulate_grad_hook(
                    lambda _, number=number: self._count(number)
                )
        self.start_batch()

    def forward(self, *inputs, **named) -> Tensor:
        return self.module(*inputs, **named)

    def start_batch(self) -> None:
        """Expect all gradients again, at the start of a step."""
        self.missing = [len(bucket) for bucket in self.buckets]

    def _count(self, number: int) -> None:
        self.missing[number] -= 1
        if not self.missing[number]:
            flat = flatten([parameter.grad for parameter in self.buckets[number]])
            flat /= dist.get_world_size()
            self.handles.append((dist.all_reduce(flat, async_op=True), flat, number))

    @torch.no_grad()
    def wait_for_buckets(self) -> None:
        """Wait for all all-reduces, and copy the averages into the gradients."""
        for handle, flat, number in self.handles:
            handle.wait()
            found = [parameter.grad for parameter in self.buckets[number]]
            for gradient, average in zip(found, unflatten(flat, found), strict=True):
                gradient.copy_(average)
        self.handles.clear()
