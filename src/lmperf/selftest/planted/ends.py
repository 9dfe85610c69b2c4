"""Attention that hangs, crashes or leaks memory."""

from __future__ import annotations

import os
import signal
import time

import torch

from lmperf.attention.reference import attention

_KEPT: list = []
# Most outputs to keep, so that an undetected leak does not use up the machine's memory.
_MOST_KEPT = 500


def leaks(q, k, v, causal=False):
    """Keeps every output alive, so that memory grows with every call."""
    out = attention(q, k, v, causal)
    if len(_KEPT) < _MOST_KEPT:
        _KEPT.append(out.detach())
    return out


_CALLS: list[int] = []


def leaks_now_and_then(q, k, v, causal=False):
    """Keeps 4 MiB alive in every seventh call."""
    _CALLS.append(1)
    if len(_CALLS) % 7 == 0 and len(_KEPT) < _MOST_KEPT:
        _KEPT.append(torch.ones(2**20, device=q.device))
    return attention(q, k, v, causal)


def raises(q, k, v, causal=False):
    raise RuntimeError("no kernel for this shape")


def exits(q, k, v, causal=False):
    os._exit(3)


def segfaults(q, k, v, causal=False):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(q, k, v, causal=False):
    """Returns the correct result, but hangs for an hour in the backward pass."""
    out = attention(q, k, v, causal)
    out.register_hook(lambda gradient: time.sleep(3600))
    return out
