"""Launch plan of the backward pass: delta, dK and dV, then dQ; or one fused kernel.

The three kernels give the same bits in every run. The fused kernel (`hopper_backward.py`) is used
where it is faster, if deterministic algorithms are required only for heads that it can do so for.
"""

from functools import lru_cache, partial

import torch
from torch import Tensor

from lmperf.attention.gluon import Attempt
from lmperf.attention.triton.arguments import scale_of
from lmperf.attention.triton.hopper_backward import WIDEST_ORDERED, Fused
from lmperf.attention.triton.key_gradients import KeyGradients
from lmperf.attention.triton.launch import (
    MOST_PLANS,
    Form,
    addressable,
    copied,
    form,
    on_device,
    tma_readable,
)
from lmperf.attention.triton.operands import Delta, Inputs
from lmperf.attention.triton.query_gradients import QueryGradients
from lmperf.attention.triton.selection import choose_fused
from lmperf.attention.triton.tiles import dot_precision, padded


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute dQ, dK and dV from the tensors that the forward pass saved.

    q, out, grad_out: [b, h, n, d]; k, v: [b, h, m, d]; lse, grad_lse: [b, h, n]. A gradient of the
    logsumexp adds P * dL to dS, so it is subtracted from delta.
    """
    forms = form(q), form(k), form(v), form(out), form(grad_out)
    settings = (dot_precision(q.dtype), _is_deterministic(), grad_lse is not None)
    planned = plan(forms, causal, scale, *settings)
    if planned is None:
        q, k, v, out = map(addressable, (q, k, v, out))
        return backward(q, k, v, out, lse, copied(grad_out), grad_lse, causal, scale)
    return on_device(q.device, planned, q, k, v, out, lse, grad_out, grad_lse)


@lru_cache(MOST_PLANS)
def plan(
    members: tuple,
    causal: bool,
    scale: float | None,
    precision: str,
    deterministic: bool,
    has_grad_lse: bool,
) -> "Backward | Attempt | None":
    """The launches for the forms of q, k, v, out and dO; None if a tensor must be copied first."""
    q, k, v, out, grad_out = forms = [Form(*each) for each in members]
    if not all(f.addressable for f in forms):
        return None
    batch, heads, n, d = q.shape
    # TMA cannot read an expanded dO, such as the gradient of a sum: a copy costs less than plain
    # loads.
    if d % 8 == 0 and tma_readable(q, k, v) and not tma_readable(q, k, v, grad_out):
        return None
    scale = scale_of(scale, d)
    in_triton = partial(Backward, *forms, causal, scale, precision)
    can_fuse = not deterministic or padded(d) <= WIDEST_ORDERED
    if can_fuse and tma_readable(q, k, v, grad_out):
        c = choose_fused(n, k.shape[2], d, batch * heads, q.device)
        if c is not None:
            settings = (has_grad_lse, causal, scale, c, deterministic)
            in_gluon = partial(Fused, q, k, out, grad_out, *settings)
            return Attempt("backward", in_gluon, in_triton)
    return in_triton()


def _is_deterministic() -> bool:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return not torch.is_deterministic_algorithms_warn_only_enabled()


class Backward:
    """The launches for one signature: delta, the split into float16 halves, dK and dV, dQ."""

    def __init__(
        self,
        q: Form,
        k: Form,
        v: Form,
        out: Form,
        grad_out: Form,
        causal: bool,
        scale: float,
        precision: str,
    ):
        self._inputs = Inputs(q, k, v, grad_out, causal, scale, precision)
        self._delta = Delta(out, grad_out)
        self._keys = KeyGradients(self._inputs, k, v)
        self._queries = QueryGradients(self._inputs, q)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        delta = self._delta(out, grad_out)
        if grad_lse is not None:
            delta = (delta - grad_lse).contiguous()
        x = self._inputs.operands(q, k, v, grad_out, lse, delta)
        dk, dv = self._keys(x, k, v)
        return self._queries(x, q), dk, dv
