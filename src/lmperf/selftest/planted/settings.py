"""Attention with correct results that leaves changed settings, threads or clocks behind."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable

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
_ELAPSED = torch.cuda.Event.elapsed_time


def _slowed(factor: int) -> dict[Callable, Callable]:
    """Return clock function -> a clock function that runs `factor` times slower."""
    return {_REAL_NS: lambda: _REAL_NS() // factor, _REAL: lambda: _REAL() / factor}


def _replace_bound(clocks: dict[Callable, Callable]) -> None:
    """Replace clock functions wherever a module of `lmperf.measuring` has imported them."""
    for name, module in list(sys.modules.items()):
        if name.startswith("lmperf.measuring."):
            for bound, value in list(vars(module).items()):
                for real, other in clocks.items():
                    if value is real:
                        setattr(module, bound, other)


def slows_the_clock(q, k, v, causal=False):
    """Makes `time.perf_counter` and `time.perf_counter_ns` run 1000 times slower."""
    slowed = _slowed(1000)
    time.perf_counter_ns, time.perf_counter = slowed[_REAL_NS], slowed[_REAL]
    return attention(q, k, v, causal)


def slows_the_bound_clocks(q, k, v, causal=False):
    """Makes the clocks that `lmperf.measuring` imported run 30 times slower.

    With a larger factor the warm-up, which lasts a given time, would not end in time.
    """
    _replace_bound(_slowed(30))
    return attention(q, k, v, causal)


def slows_the_events(q, k, v, causal=False):
    """Divides the times between CUDA events by 1000 where `lmperf.measuring` reads them."""
    _replace_bound({_ELAPSED: lambda start, end: _ELAPSED(start, end) / 1000})
    return attention(q, k, v, causal)


_SLOWED_SINCE: list[int] = []


def slows_one_clock(q, k, v, causal=False):
    """Makes the clock of the timed calls run at 0.8 of its speed from the first call on."""
    if not _SLOWED_SINCE:
        _SLOWED_SINCE.append(_REAL_NS())
        clock = sys.modules["lmperf.measuring.clock"]
        (since,) = _SLOWED_SINCE
        clock.now = lambda: since + (_REAL_NS() - since) * 4 // 5
    return attention(q, k, v, causal)
