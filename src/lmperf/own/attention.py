"""Adapts a user's attention, a function or an `autograd.Function`, to the timed signature."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmperf.own.signatures import autograd_function, causal_flag

AttentionFunction = Callable[..., Tensor]


class Fitted:
    """Wraps `given` as a function of (q, k, v, causal=...) of three- or four-dimensional tensors.

    Some implementations take [batch, seq_len, d_head] only, such as the `autograd.Function` that
    courses ask for; others take [batch, heads, seq_len, d_head] only. The first call passes the
    inputs as they are. If that, or its backward pass, raises, or it returns another shape, it
    passes views with the other number of dimensions. Later calls repeat the choice. If both fail,
    the choice is the attempt that returned a result, else the one whose exception came later in the
    code: so a function for three dimensions that runs out of memory there does not fail with its
    complaint about four.

    Args:
        given: a function whose mask is switched on by an argument `causal`, `is_causal` or the
            like, or an `autograd.Function` class with `apply(q, k, v, is_causal)`.
    """

    def __init__(self, given: Any):
        self._function = _called(given)
        self._forms: list[AttentionFunction] = []  # the chosen one, and the other one

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        if self._forms:
            return self._forms[0](q, k, v, causal=causal)
        function = self._function
        forms = [function, _with_one_head(function) if q.ndim == 3 else _flat(function)]
        returned: dict[AttentionFunction, Any] = {}
        raised: dict[AttentionFunction, Exception] = {}
        for form in forms:
            try:
                returned[form] = result = form(q, k, v, causal=causal)
                if _fits(result, q, k, v):
                    self._choose(form, forms)
                    return result
            except Exception as error:
                raised[form] = error
        if returned:
            form, result = next(iter(returned.items()))
            self._choose(form, forms)
            return result
        form, error = max(raised.items(), key=lambda item: _reached(item[1]))
        self._choose(form, forms)
        raise error

    def _choose(self, form: AttentionFunction, forms: list[AttentionFunction]) -> None:
        self._forms = [form, *(other for other in forms if other is not form)]

    def turn(self) -> None:
        """Take the other number of dimensions from now on.

        An implementation may give wrong results for a layout without raising anything.
        """
        self._forms.reverse()


def _fits(result: Any, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether an output has the shape of q; raises what its backward pass raises."""
    if not isinstance(result, Tensor) or result.shape != q.shape:
        return False
    if result.requires_grad:
        torch.autograd.grad(result, (q, k, v), result.detach(), retain_graph=True)
    return True


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
