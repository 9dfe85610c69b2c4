"""Backward pass: delta, then dK and dV by tiles of keys, then dQ by tiles of queries."""

from functools import lru_cache

from torch import Tensor

from lmperf.attention.triton.key_gradients import KeyGradients
from lmperf.attention.triton.launch import MOST_PLANS, Form, addressable, current
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
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV from what forward saved.

    q, out, grad_out: [b, h, n, d]; k, v: [b, h, m, d]; lse, grad_lse: [b, h, n]. A gradient of the
    logsumexp adds P * dL to dS, so it is taken off delta.
    """
    q, k, v, out, grad_out = (addressable(t) for t in (q, k, v, out, grad_out))
    forms = (Form.of(t) for t in (q, k, v, out, grad_out))
    launches = plan(*forms, causal, scale, dot_precision(q.dtype))
    return launches(q, k, v, out, lse, grad_out, grad_lse)


@lru_cache(MOST_PLANS)
def plan(q: Form, k: Form, v: Form, out: Form, grad_out: Form, causal, scale, precision):
    """The launches for these forms, and for the precision that torch allows now."""
    return Backward(q, k, v, out, grad_out, causal, scale)


class Backward:
    """What one signature launches: delta, the halves, and the two gradient kernels."""

    def __init__(
        self, q: Form, k: Form, v: Form, out: Form, grad_out: Form, causal: bool, scale: float
    ):
        self._device = q.device
        self._inputs = Inputs(q, k, v, grad_out, causal, scale)
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
        with current(self._device):
            delta = self._delta(out, grad_out)
            if grad_lse is not None:
                delta = (delta - grad_lse).contiguous()
            x = self._inputs.operands(q, k, v, grad_out, lse, delta)
            dk, dv = self._keys(x, k, v)
            return self._queries(x, q), dk, dv
