"""Tells why a custom implementation cannot be used: imports it, and calls it once.

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

# How long the call that shows what a function returns may take.
_CALL_S = 1.0


def answer(entry: str, takes: str, kind: str, limit_s: float) -> None:
    """Import an entry and print its problem as JSON; then end the process.

    Runs in the child process. Output of the imported module is discarded. If there is no problem,
    a call shows what the function returns, and its answer is a second line: the first one counts
    if the call ends the process.
    """
    signal.alarm(2 * math.ceil(limit_s))  # ends this process if the parent has died
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        problem = _problem(entry, takes, kind)
        print(json.dumps(problem), file=answers, flush=True)
        if not problem and "torch" in sys.modules:
            print(json.dumps(_returned(resolve(entry), takes)), file=answers, flush=True)
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


def _returned(found: Any, takes: str) -> str:
    """Return what a small call on the CPU returns, if that is no tensor; else "".

    Also "" if the call fails or takes longer than a second: it may need a GPU, or compile.
    """
    calls = {"attention": _attend, "model": _forward}
    results: list[Any] = []

    def call() -> None:
        with contextlib.suppress(BaseException):
            results.append(calls[takes](found))

    thread = threading.Thread(target=call, daemon=True)
    if takes in calls:
        thread.start()
        thread.join(_CALL_S)
    import torch

    if not results or isinstance(results[0], torch.Tensor):
        return ""
    wanted = {"attention": "the output alone", "model": "the logits alone"}[takes]
    return f"it returns a {type(results[0]).__name__}; it must return {wanted}, a tensor"


def _attend(attention: Any) -> Any:
    import torch

    from lmperf.attention.custom import fitted

    return fitted(attention)(*torch.randn(3, 1, 16, 16, device="cpu"), causal=True)


def _forward(model_class: Any) -> Any:
    import torch

    from lmperf.transformer.custom import build, is_model
    from lmperf.transformer.sizes import ModelSize

    tokens = torch.zeros(1, 8, dtype=torch.int64, device="cpu")
    if not is_model(model_class):
        return tokens  # unknown: it runs the project's model
    with torch.device("cpu"):
        return build(model_class, ModelSize(32, 64, 1, 2), 8)(tokens)


def _installing(error: ModuleNotFoundError) -> str:
    """How to install what an import misses; "" if it is a module of a package that is there."""
    package = (error.name or "").partition(".")[0]
    return f"; pip install {package}" if package and find(package) is None else ""
