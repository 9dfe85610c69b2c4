"""A user's own attention, in whatever form it has, as the function that is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

AttentionFunction = Callable[..., Tensor]


def fitted(given: Any) -> AttentionFunction:
    """A function of (q, k, v, causal=...) that finds out by its first call which inputs it takes.

    Courses ask for an `autograd.Function` whose inputs are [batch, seq_len, d_head]; others take
    [batch, heads, seq_len, d_head] only. Inputs of three dimensions and of four are handed on as
    they are; where that raises, or gives another shape, they are handed on with four or with three,
    as views. Where nothing fits what came of the first way is what the caller gets.

    Args:
        given: a function, or an `autograd.Function` class with `apply(q, k, v, is_causal)`.
    """
    function = _applied(given) if isinstance(given, type) else given
    chosen: list[AttentionFunction] = []

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        if chosen:
            return chosen[0](q, k, v, causal=causal)
        results = []
        for form in (function, _with_one_head(function) if q.ndim == 3 else _flat(function)):
            try:
                result = form(q, k, v, causal=causal)
            except Exception as error:  # the other form, too, has to fail before it counts
                results.append(error)
                continue
            if isinstance(result, Tensor) and result.shape == q.shape:
                chosen.append(form)
                return result
            results.append(result)
        chosen.append(function)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    return call


def _applied(given: type[torch.autograd.Function]) -> AttentionFunction:
    def apply(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        return given.apply(q, k, v, causal)

    return apply


def _flat(function: AttentionFunction) -> AttentionFunction:
    """On [batch * heads, seq_len, d_head]."""

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        flat = (tensor.flatten(0, -3) for tensor in (q, k, v))
        return function(*flat, causal=causal).unflatten(0, q.shape[:-2])

    return call


def _with_one_head(function: AttentionFunction) -> AttentionFunction:
    """On [batch, 1, seq_len, d_head]."""

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        split = (tensor.unsqueeze(1) for tensor in (q, k, v))
        return function(*split, causal=causal).squeeze(1)

    return call
