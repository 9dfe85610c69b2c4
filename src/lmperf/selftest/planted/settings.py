"""Attention with correct results that leaves changed settings, threads or clocks behind."""

from __future__ import annotations

import hashlib
import os
import threading
import time

import torch

from lmperf.attention.reference import attention


def leaves_gradients_off(q, k, v, causal=False):
    out = attention(q, k, v, causal)
    torch.set_grad_enabled(False)
    return out


def leaves_another_dtype(q, k, v, causal=False):
    out = attention(q, k, v, causal)
    torch.set_default_dtype(torch.float64)
    return out


def leaves_one_thread(q, k, v, causal=False):
    out = attention(q, k, v, causal)
    torch.set_num_threads(1)
    return out


_SPINNING: list[threading.Thread] = []


def leaves_spinning_threads(q, k, v, causal=False):
    """Leaves one thread per core running; each computes forever without holding the GIL."""
    if not _SPINNING:
        for _ in range(os.cpu_count() or 1):
            _SPINNING.append(threading.Thread(target=_spin, daemon=True))
            _SPINNING[-1].start()
    return attention(q, k, v, causal)


def _spin() -> None:
    block = bytes(2**24)
    while True:
        hashlib.sha256(block)


_REAL_NS, _REAL = time.perf_counter_ns, time.perf_counter


def slows_the_clock(q, k, v, causal=False):
    """Makes `time.perf_counter` and `time.perf_counter_ns` run 1000 times slower."""
    time.perf_counter_ns, time.perf_counter = lambda: _REAL_NS() // 1000, lambda: _REAL() / 1000
    return attention(q, k, v, causal)
