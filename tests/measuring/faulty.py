"""Attention implementations that go wrong, each in its own way."""

import os
import signal
import time

import torch

from lmperf.attention.reference import attention


def ends(q, k, v, causal=False):
    os._exit(3)


def segfaults(q, k, v, causal=False):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(q, k, v, causal=False):
    time.sleep(600)


def asks_for_a_pebibyte(q, k, v, causal=False):
    return torch.empty(2**50, dtype=torch.uint8)


def is_not_finite(q, k, v, causal=False):
    return attention(q, k, v, causal) * float("nan")


def drops_the_last_key(q, k, v, causal=False):
    return attention(q, k[..., :-1, :], v[..., :-1, :], causal)


def fails_in_backward(q, k, v, causal=False):
    out = attention(q, k, v, causal)
    out.register_hook(lambda grad: torch.empty(2**50, dtype=torch.uint8))
    return out


def raises(q, k, v, causal=False):
    raise RuntimeError("no kernel for this")
