"""Adapts a user's attention, a function or an `autograd.Function`, to the timed signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

AttentionFunction = Callable[..., Tensor]


def fitted(given: Any) -> AttentionFunction:
    """Wrap `given` as a function of (q, k, v, causal=...) of three- or four-dimensional tensors.

    Some implementations take [batch, seq_len, d_head] only, such as the `autograd.Function` that
    courses ask for; others take [batch, heads, seq_len, d_head] only. The first call passes the
    inputs as they are. If that raises or returns another shape, it passes views with the other
    number of dimensions. Later calls repeat the choice. If both fail, the caller gets the result or
    the exception of the first attempt.

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
            except Exception as error:  # the first error is raised if both fail
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
    """`function` applied to [batch * heads, seq_len, d_head]."""

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        flat = (tensor.flatten(0, -3) for tensor in (q, k, v))
        return function(*flat, causal=causal).unflatten(0, q.shape[:-2])

    return call


def _with_one_head(function: AttentionFunction) -> AttentionFunction:
    """`function` applied to [batch, 1, seq_len, d_head]."""

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        split = (tensor.unsqueeze(1) for tensor in (q, k, v))
        return function(*split, causal=causal).squeeze(1)

    return call
