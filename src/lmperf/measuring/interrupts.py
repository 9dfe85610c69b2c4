"""Delays signals during an operation that must not be interrupted halfway."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until this block ends; the first of them is then raised."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    came: list[int] = []
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in _NUMBERS]
    try:
        yield
    finally:
        for number, handler in zip(_NUMBERS, before, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came[:1]:
            signal.raise_signal(number)
