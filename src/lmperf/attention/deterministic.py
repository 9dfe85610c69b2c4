"""lmperf's attention whose backward pass gives the same bits in every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lmperf.attention.triton import flash_attention


def deterministic_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """`flash_attention`, whose backward runs under `torch.use_deterministic_algorithms`.

    A process that sets it for all of its operators needs no such function. PyTorch then fills each
    tensor that it allocates, unless `torch.utils.deterministic.fill_uninitialized_memory` is False.
    Here it is: the kernel writes all of its results, and the fills would be timed as its own.
    """
    return _Attention.apply(q, k, v, causal)


class _Attention(torch.autograd.Function):
    """The backward has a graph of its own, which it keeps: it can run again, as that of PyTorch."""

    @staticmethod
    def forward(ctx, q, k, v, causal):
        with torch.enable_grad():
            ctx.inputs = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
            ctx.out = flash_attention(*ctx.inputs, causal)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, grad):
        with _deterministic():
            return *torch.autograd.grad(ctx.out, ctx.inputs, grad, retain_graph=True), None


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        torch.utils.deterministic.fill_uninitialized_memory = fills
