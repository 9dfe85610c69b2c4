"""Answers that were worked out before: for other inputs, or not at all until somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from lmperf.attention.reference import attention

Source = Callable[[], tuple[Tensor, Tensor, Tensor, Tensor]]


class Memory:
    """What was worked out in `honest_calls` calls with a key, and afterwards the last of it."""

    def __init__(self, honest_calls: int = 1) -> None:
        self._honest_calls = honest_calls
        self._calls: dict[Hashable, int] = {}
        self._last: dict[Hashable, Any] = {}

    def recall(self, key: Hashable, work_out: Callable[[], Any]) -> Any:
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= self._honest_calls:
            self._last[key] = work_out()
        return self._last[key]


class Remembered(torch.autograd.Function):
    """Attention from a memory, forward and backward; of the tensors of `source`, if any."""

    @staticmethod
    def forward(ctx, q, k, v, causal: bool, memory: Memory, key: Hashable, source: Source | None):
        ctx.save_for_backward(q, k, v)
        ctx.causal, ctx.memory, ctx.key, ctx.source = causal, memory, key, source

        def work_out() -> Tensor:
            return attention(*(source()[:3] if source else (q, k, v)), causal)

        return memory.recall(("out", key), work_out).detach()

    @staticmethod
    def backward(ctx, gradient):
        def work_out() -> tuple[Tensor, ...]:
            if ctx.source:
                *inputs, known = ctx.source()
                return gradients(inputs, ctx.causal, known)
            return gradients(ctx.saved_tensors, ctx.causal, gradient)

        return *ctx.memory.recall(("gradients", ctx.key), work_out), None, None, None, None


def gradients(inputs, causal: bool, gradient: Tensor) -> tuple[Tensor, ...]:
    """dq, dk, dv of attention, by a forward and a backward pass."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        return torch.autograd.grad(attention(*leaves, causal), leaves, gradient)


_BY_ADDRESS, _BY_SHAPE, _TWENTY, _SEED = Memory(), Memory(), Memory(honest_calls=20), Memory()


def by_address(q, k, v, causal=False):
    key = tuple(tensor.data_ptr() for tensor in (q, k, v))
    return Remembered.apply(q, k, v, causal, _BY_ADDRESS, key, None)


def by_shape(q, k, v, causal=False):
    return Remembered.apply(q, k, v, causal, _BY_SHAPE, (q.shape, q.dtype), None)


def after_twenty_calls(q, k, v, causal=False):
    return Remembered.apply(q, k, v, causal, _TWENTY, (q.shape, q.dtype), None)


def for_the_seed(q, k, v, causal=False):
    """Knows how a group's inputs are drawn, and has the answer to them ready."""

    def source():
        return _inputs_of_the_seed(q, causal)

    return Remembered.apply(q, k, v, causal, _SEED, (q.shape, q.dtype), source)


def _inputs_of_the_seed(q: Tensor, causal: bool) -> tuple[Tensor, ...]:
    from lmperf.attention.problem import AttentionProblem
    from lmperf.benchmark import Case, load
    from lmperf.measuring.run import _seed

    dtype = str(q.dtype).removeprefix("torch.")
    values = (*q.shape, dtype, causal, False)
    benchmark = load("flash_attention")
    cell = tuple(zip((axis.name for axis in benchmark.axes), values, strict=True))
    seed = _seed(benchmark, [Case(cell, "eager")])
    problem = AttentionProblem(tuple(q.shape), dtype, causal, q.device.type, seed)
    return tuple(tensor.detach() for tensor in problem.inputs)


class Lazy(Tensor):
    """A tensor that is worked out when it is first looked at: after the clock, if at all."""

    @staticmethod
    def __new__(cls, work_out: Callable[[], Tensor], like: Tensor):
        return Tensor._make_wrapper_subclass(
            cls, like.shape, dtype=like.dtype, device=like.device, requires_grad=True
        )

    def __init__(self, work_out: Callable[[], Tensor], like: Tensor):
        self.work_out, self.value = work_out, None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map(cls._worked_out, (args, kwargs or {}))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map(cls._worked_out, (args, kwargs or {}))
        return function(*args, **kwargs)

    @staticmethod
    def _worked_out(value):
        if not isinstance(value, Lazy):
            return value
        if value.value is None:
            value.value = value.work_out()
        return value.value


def lazy(q, k, v, causal=False):
    return Lazy(lambda: attention(q, k, v, causal), q)
