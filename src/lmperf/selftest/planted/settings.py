"""Right results, and something left behind in the process that those who come after would meet."""

from __future__ import annotations

import hashlib
import os
import sys
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
    """Leaves a thread for each processor behind, which works without end, and without the GIL."""
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


def _slow_ns() -> int:
    return _REAL_NS() // 1000


def _slow() -> float:
    return _REAL() / 1000


def slows_the_clock(q, k, v, causal=False):
    """From now on a second is a millisecond, by the clocks of Python's `time`."""
    time.perf_counter_ns, time.perf_counter = _slow_ns, _slow
    return attention(q, k, v, causal)


def slows_the_harness(q, k, v, causal=False):
    """The same by every clock that a module of the harness has bound."""
    for name, module in list(sys.modules.items()):
        if name.startswith("lmperf.measuring."):
            for bound, value in list(vars(module).items()):
                if value in (_REAL_NS, _REAL):
                    setattr(module, bound, _slow_ns if value is _REAL_NS else _slow)
    return attention(q, k, v, causal)


def slows_the_events(q, k, v, causal=False):
    """The same by the clock of the device."""
    torch.cuda.Event.elapsed_time = lambda start, end: _ELAPSED(start, end) / 1000
    return attention(q, k, v, causal)
