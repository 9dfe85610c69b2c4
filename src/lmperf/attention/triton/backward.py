"""Backward pass: delta, then dK and dV by tiles of keys, then dQ by tiles of queries."""

from functools import lru_cache

from torch import Tensor

from lmperf.attention.triton.arguments import scale_of
from lmperf.attention.triton.key_gradients import KeyGradients
from lmperf.attention.triton.launch import MOST_PLANS, Form, addressable, form, on_device
from lmperf.attention.triton.operands import Delta, Inputs
from lmperf.attention.triton.query_gradients import QueryGradients
from lmperf.attention.triton.tiles import dot_precision


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
    """dQ, dK, dV from what forward saved.

    q, out, grad_out: [b, h, n, d]; k, v: [b, h, m, d]; lse, grad_lse: [b, h, n]. A gradient of the
    logsumexp adds P * dL to dS, so it is taken off delta.
    """
    forms = form(q), form(k), form(v), form(out), form(grad_out)
    planned = plan(forms, causal, scale, dot_precision(q.dtype))
    if planned is None:
        q, k, v, out, grad_out = map(addressable, (q, k, v, out, grad_out))
        return backward(q, k, v, out, lse, grad_out, grad_lse, causal, scale)
    return on_device(q.device, planned, q, k, v, out, lse, grad_out, grad_lse)


@lru_cache(MOST_PLANS)
def plan(members: tuple, causal: bool, scale: float | None, precision: str) -> "Backward | None":
    """The launches for the forms of q, k, v, out and dO, and for what torch allows now.

    None where a tensor must be copied first.
    """
    forms = [Form(*each) for each in members]
    if not all(f.addressable for f in forms):
        return None
    return Backward(*forms, causal, scale_of(scale, forms[0].shape[-1]), precision)


class Backward:
    """What one signature launches: delta, the halves, and the two gradient kernels."""

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
