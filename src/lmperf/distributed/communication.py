"""Collectives that average over ranks, and the division where the backend cannot average."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# torch 2.13 deprecates the older names, and 2.11 has no others.
all_gather_flat = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter_flat = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
# Offsets of tensors in a flat buffer, in elements: kernels read 16 bytes at once.
_ALIGNED = 64


def average_op() -> dist.ReduceOp:
    """The reduction of gradients: NCCL averages, gloo only adds; then call `divided`."""
    return dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM


def divided(*tensors: Tensor) -> None:
    """Divide sums by the number of ranks, in place, unless the backend has averaged them."""
    if tensors and average_op() == dist.ReduceOp.SUM:
        torch._foreach_div_(list(tensors), dist.get_world_size())


def offsets_of(numels: list[int], ranks: int = 1) -> tuple[list[int], int]:
    """Aligned offsets of tensors in a flat buffer, and its length, a multiple of `ranks` parts.

    Each part is a multiple of the alignment, so that parts are aligned as well.
    """
    offsets, end = [], 0
    for numel in numels:
        offsets.append(end)
        end += -(-numel // _ALIGNED) * _ALIGNED
    part = ranks * _ALIGNED
    return offsets, -(-end // part) * part


def broadcast_state(module: nn.Module) -> None:
    """Overwrite parameters and buffers by those of rank 0."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=0)


def weak_hook(method: Callable, *arguments: Any, outputs: bool = False) -> Callable:
    """A hook that calls a bound method with `arguments` while its object is alive.

    outputs: whether the method also receives the last argument of the hook, such as the outputs of
    a module.

    Autograd's references to hooks are invisible to Python's garbage collector: a hook that holds
    its module would keep the module and all of its gradients in memory.
    """
    reference = weakref.WeakMethod(method)

    def hook(*given: Any) -> None:
        called = reference()
        if called is not None:
            called(*arguments, *given[-1:] if outputs else ())

    return hook


def alike_groups(parameters: list[nn.Parameter], most: float) -> list[list[nn.Parameter]]:
    """Split parameters, in order, into groups whose gradients have one dtype and device.

    The gradients of a group have at most `most` bytes together, or are one.
    """
    groups: list[list[nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        alike = groups and _kind(groups[-1][0]) == _kind(parameter)
        size += gradient_bytes(parameter)
        if not alike or size > most:
            groups.append([])
            size = gradient_bytes(parameter)
        groups[-1].append(parameter)
    return groups


def gradient_bytes(parameter: nn.Parameter) -> int:
    """Bytes of a parameter's gradient."""
    return parameter.numel() * parameter.grad_dtype.itemsize


def _kind(parameter: nn.Parameter) -> tuple[torch.dtype, torch.device]:
    return parameter.grad_dtype, parameter.device
