"""Adapts a user's attention, a function or an `autograd.Function`, to the timed signature."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmperf.signatures import autograd_function, causal_flag

AttentionFunction = Callable[..., Tensor]


def fitted(given: Any) -> AttentionFunction:
    """Wrap `given` as a function of (q, k, v, causal=...) of three- or four-dimensional tensors.

    Some implementations take [batch, seq_len, d_head] only, such as the `autograd.Function` that
    courses ask for; others take [batch, heads, seq_len, d_head] only. The first call passes the
    inputs as they are. If that raises or returns another shape, it passes views with the other
    number of dimensions. Later calls repeat the choice. If both fail, the choice is the attempt
    that returned a result, else the one whose exception came later in the code: so a function for
    three dimensions that runs out of memory there does not fail with its complaint about four.

    Args:
        given: a function whose mask is switched on by an argument `causal`, `is_causal` or the
            like, or an `autograd.Function` class with `apply(q, k, v, is_causal)`.
    """
    function = _called(given)
    chosen: list[AttentionFunction] = []

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        if chosen:
            return chosen[0](q, k, v, causal=causal)
        returned: dict[AttentionFunction, Any] = {}
        raised: dict[AttentionFunction, Exception] = {}
        for form in (function, _with_one_head(function) if q.ndim == 3 else _flat(function)):
            try:
                returned[form] = result = form(q, k, v, causal=causal)
            except Exception as error:
                raised[form] = error
                continue
            if isinstance(result, Tensor) and result.shape == q.shape:
                chosen.append(form)
                return result
        if returned:
            form, result = next(iter(returned.items()))
            chosen.append(form)
            return result
        form, error = max(raised.items(), key=lambda item: _reached(item[1]))
        chosen.append(form)
        raise error

    return call


def _reached(error: Exception) -> list[int]:
    """The line numbers of a traceback in the user's code, outermost first.

    Both attempts run the same code, so the larger list came later. Frames of this module, whose
    number differs between the attempts, and of torch do not count.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = (__file__, str(Path(torch.__file__).parent))
    return [frame.lineno or 0 for frame in frames if not frame.filename.startswith(ours)]


def _called(given: Any) -> AttentionFunction:
    """What is given as a function of (q, k, v, causal=...)."""
    function, flag = autograd_function(given), causal_flag(given)
    if function is None and flag == "causal":
        return given

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        return function.apply(q, k, v, causal) if function else given(q, k, v, **{flag: causal})

    return call


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
