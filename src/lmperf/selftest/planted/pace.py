"""Attention with correct results at different speeds."""

from __future__ import annotations

import time

import torch

from lmperf.attention.reference import attention
from lmperf.selftest.planted import FIRST_CALL_S


def copy_of_eager(q, k, v, causal=False):
    return attention(q, k, v, causal)


def twin(q, k, v, causal=False):
    """Computes attention on copies of the inputs, as `tenth_more` but without extra heads."""
    return _with_heads(q, k, v, causal, 0)


def tenth_more(q, k, v, causal=False):
    """Computes a tenth of the heads (rounded) twice. q, k, v: [batch, heads, n, d]."""
    return _with_heads(q, k, v, causal, round(q.shape[1] / 10))


def _with_heads(q, k, v, causal, extra: int):
    heads = q.shape[1]
    copies = (torch.cat([tensor, tensor[:, :extra]], dim=1) for tensor in (q, k, v))
    return attention(*copies, causal)[:, :heads]


_CALLED: list[bool] = []


def slow_first_call(q, k, v, causal=False):
    """Sleeps for FIRST_CALL_S seconds in the first call, as if it compiled."""
    if not _CALLED:
        _CALLED.append(True)
        time.sleep(FIRST_CALL_S)
    return attention(q, k, v, causal)


def _sdpa(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def copy_of_sdpa(q, k, v, causal=False):
    return _sdpa(q, k, v, causal)


def second_copy_of_sdpa(q, k, v, causal=False):
    return _sdpa(q, k, v, causal)


def third_copy_of_sdpa(q, k, v, causal=False):
    return _sdpa(q, k, v, causal)


def fourth_copy_of_sdpa(q, k, v, causal=False):
    return _sdpa(q, k, v, causal)
