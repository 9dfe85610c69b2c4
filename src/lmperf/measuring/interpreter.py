"""Counts the kernels that Triton's interpreter runs, whose time is that of numpy."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from lmperf.benchmark import Unsupported

# What a Triton kernel without a GPU is told, whether it was interpreted or not.
NEEDS_GPU = "needs a GPU, or TRITON_INTERPRET=1, in which it is checked and not timed"
CHECKED = f"{NEEDS_GPU}: its results are right"
# How Triton says that there is no GPU to compile for.
NO_DRIVER = "0 active drivers"
_count = [0]


def watch() -> None:
    """Count from now on the kernels that the interpreter runs in this process."""
    if os.environ.get("TRITON_INTERPRET", "0") == "0":
        return
    with suppress(ImportError):
        from triton.runtime.interpreter import InterpretedFunction

        run = InterpretedFunction.run

        def counted(*arguments: Any, **named: Any) -> Any:
            _count[0] += 1
            return run(*arguments, **named)

        InterpretedFunction.run = counted


def launches() -> int:
    """Return how many kernels the interpreter has run so far."""
    return _count[0]


def require_none(since: int, device: str, words: str = NEEDS_GPU) -> None:
    """Raise Unsupported if the interpreter has run kernels since it had run so many."""
    if launches() > since and device != "cuda":
        raise Unsupported(words)
