"""Tells why a custom implementation cannot be used: imports it, and calls attention once.

Runs in a child process of `lmperf.custom`, since both may print, exit or hang.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import signal
import sys
import threading
from typing import Any

from lmperf.benchmark import resolve
from lmperf.errors import described
from lmperf.signatures import fault_of, is_called_with_nothing
from lmperf.sources import find

# How long the call may take.
_CALL_S = 1.0


def answer(entry: str, takes: str, kind: str, limit_s: float) -> None:
    """Import an entry and print its problem as JSON; then end the process.

    Runs in the child process. Output of the imported module is discarded. If there is no problem,
    a call may show one, which is a second line: the first one counts if the call ends the process.
    """
    signal.alarm(2 * math.ceil(limit_s))  # ends this process if the parent has died
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        problem = _problem(entry, takes, kind)
        print(json.dumps(problem), file=answers, flush=True)
        if not problem and takes == "attention" and "torch" in sys.modules:
            print(json.dumps(_returned(resolve(entry))), file=answers, flush=True)
        os._exit(0)  # without waiting for threads that the import started


def _problem(entry: str, takes: str, kind: str) -> str:
    module_name, _, name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        return f"it cannot be imported: {described(error)}{_installing(error)}"
    except BaseException as error:
        return f"it cannot be imported: {described(error)}"
    try:
        found = getattr(module, name)
    except AttributeError:
        return f"the module {module_name} has no {name}"
    except BaseException as error:  # from the module's __getattr__
        return f"it cannot be read: {described(error)}"
    problem = fault_of(found, takes, kind)
    return _class_instead(found, takes, kind) or problem if problem else ""


def _class_instead(found: Any, takes: str, kind: str) -> str:
    """What to write instead of a function without arguments that returns the right class."""
    if isinstance(found, type) or not is_called_with_nothing(found):
        return ""
    try:
        made = found()
        name = f"{made.__module__}:{made.__qualname__}"
    except BaseException:
        return ""
    return "" if fault_of(made, takes, kind) else f"it returns {made.__name__}; write {name}"


def _returned(attention: Any) -> str:
    """Return what a small call of attention on the CPU shows to be wrong; "" if nothing.

    Also "" if the call fails or takes longer than a second: it may need a GPU, or compile.
    """
    import torch

    from lmperf.attention.custom import fitted

    results: list[Any] = []

    def call() -> None:
        q, k, v = torch.randn(3, 1, 16, 16, device="cpu")
        with contextlib.suppress(BaseException):
            results.append(fitted(attention)(q, k, v, causal=True))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_CALL_S)
    if not results or isinstance(results[0], torch.Tensor):
        return ""
    kind = type(results[0]).__name__
    return f"it returns a {kind}; it must return the output alone, a tensor"


def _installing(error: ModuleNotFoundError) -> str:
    """How to install what an import misses; "" if it is a module of a package that is there."""
    package = (error.name or "").partition(".")[0]
    return f"; pip install {package}" if package and find(package) is None else ""
