"""Data parallel training: every rank has the whole model and a part of the batch.

`DataParallel` averages the gradients one by one or in flat buckets, after the backward pass or
overlapped with it. Source for buckets and overlap: Li et al. 2020 (arXiv 2006.15704).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmperf.distributed.communication import (
    alike_groups,
    average_op,
    broadcast_state,
    divided,
    offsets_of,
    weak_hook,
)

_MB = 10**6


class DataParallel(nn.Module):
    """Wraps a module, whose gradients are averages over all ranks after the backward pass.

    Call `finish_gradient_synchronization` after the backward pass and before the optimizer's step.
    The constructor copies the weights of rank 0 to the other ranks.

    Args:
        module: the model; it is called with the arguments of the wrapper.
        bucket_mb: gradients are copied into persistent buffers of this many MB (10^6 bytes), one
            collective each; a larger gradient has a buffer of its own. `math.inf`: one buffer for
            all. None: each gradient is reduced where autograd puts it, without a copy.
        overlapped: whether reductions start in the backward pass, as soon as their gradients are
            complete, or only after it.
    """

    def __init__(self, module: nn.Module, bucket_mb: float | None = None, overlapped: bool = True):
        super().__init__()
        self.module = module
        broadcast_state(module)
        self._reducer = reducer_of(module.parameters(), bucket_mb, overlapped)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def finish_gradient_synchronization(self) -> None:
        """Wait until every gradient is the average over the ranks."""
        self._reducer.finish()


def reducer_of(
    parameters: Iterable[nn.Parameter], bucket_mb: float | None, overlapped: bool = True
) -> Reducer:
    """A reducer of the gradients of those parameters that require one."""
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    if bucket_mb is None:
        return InPlaceReducer(wanted, overlapped)
    return BucketReducer(wanted, bucket_mb, overlapped)


class Reducer:
    """Averages the gradients of parameters over all ranks.

    `_ready(index)` is called in the backward pass when the gradient of a parameter is complete, if
    reductions overlap with it.
    """

    def __init__(self, parameters: list[nn.Parameter], overlapped: bool):
        self._params = parameters
        self._works: list[dist.Work] = []
        if overlapped:
            for index, parameter in enumerate(parameters):
                parameter.register_post_accumulate_grad_hook(weak_hook(self._ready, index))

    def _ready(self, index: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Reduce what is left, and wait until all gradients are averages."""
        raise NotImplementedError

    def _reduce(self, tensor: Tensor) -> None:
        self._works.append(dist.all_reduce(tensor, average_op(), async_op=True))

    def _wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works.clear()


class InPlaceReducer(Reducer):
    """Reduces each gradient by itself, in the memory where autograd has put it."""

    def __init__(self, parameters: list[nn.Parameter], overlapped: bool):
        self._reduced: list[Tensor] = []
        self._overlapped = overlapped
        super().__init__(parameters, overlapped)

    def _ready(self, index: int) -> None:
        gradient = self._params[index].grad
        self._reduced.append(gradient)
        self._reduce(gradient)

    def finish(self) -> None:
        if not self._overlapped:
            self._reduced = [p.grad for p in self._params if p.grad is not None]
            for gradient in self._reduced:
                dist.all_reduce(gradient, average_op())
        self._wait()
        divided(*self._reduced)
        self._reduced.clear()


class _Bucket:
    """A flat buffer for the gradients of some parameters of one dtype and device."""

    def __init__(self, parameters: list[nn.Parameter]):
        self.parameters = parameters
        offsets, length = offsets_of([parameter.numel() for parameter in parameters])
        first = parameters[0]
        self.flat = torch.zeros(length, dtype=first.dtype, device=first.device)
        self.views = [
            self.flat[offset : offset + parameter.numel()].view_as(parameter)
            for offset, parameter in zip(offsets, parameters, strict=True)
        ]
        self.left = len(parameters)

    def fill(self) -> None:
        """Copy the gradients into the buffer, and let the parameters' gradients be views of it."""
        filled, gradients = [], []
        for view, parameter in zip(self.views, self.parameters, strict=True):
            if parameter.grad is None:
                view.zero_()  # another rank may have one
            elif parameter.grad is not view:
                filled.append(view)
                gradients.append(parameter.grad)
            parameter.grad = view
        if filled:
            torch._foreach_copy_(filled, gradients)


class BucketReducer(Reducer):
    """Reduces gradients in flat buckets, the last parameters first: their gradients come first.

    Buckets are reduced in this order on every rank, whatever the order in which they fill.
    """

    def __init__(self, parameters: list[nn.Parameter], bucket_mb: float, overlapped: bool):
        self._buckets = [
            _Bucket(group) for group in alike_groups(parameters[::-1], bucket_mb * _MB)
        ]
        owners = {
            id(parameter): bucket for bucket in self._buckets for parameter in bucket.parameters
        }
        self._owners = [owners[id(parameter)] for parameter in parameters]
        self._next = 0
        super().__init__(parameters, overlapped)

    def _ready(self, index: int) -> None:
        self._owners[index].left -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].left <= 0:
            self._launch()

    def _launch(self) -> None:
        bucket = self._buckets[self._next]
        bucket.fill()
        self._reduce(bucket.flat)
        self._next += 1

    def finish(self) -> None:
        while self._next < len(self._buckets):
            self._launch()
        self._wait()
        divided(*(bucket.flat for bucket in self._buckets))
        self._next = 0
        for bucket in self._buckets:
            bucket.left = len(bucket.parameters)
