"""Tells why a custom implementation cannot be used: imports it, and calls it once.

Runs in a child process of `lmperf.own.check`, since both may print, exit or hang.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from lmperf.errors import described
from lmperf.measuring.processes import can_be_interrupted, die_with
from lmperf.own.imported import imported
from lmperf.own.signatures import bound, fault_of, is_called_with_nothing, is_model, is_step
from lmperf.sources import find, how_to_install

# How long the call may take.
_CALL_S = 3.0
# What a benchmark takes -> the modules that the call needs.
_IMPORTED = {
    "attention": ["lmperf.own.attention"],
    "model": ["lmperf.own.model", "lmperf.transformer.reference"],
}


def answer(asked: Sequence[tuple[str, str, str, dict[str, Any]]], calls: bool, parent: int) -> None:
    """Import entries; write for each as JSON its number, the entry to configure, and its fault.

    Runs in the child process, and ends it. Output of the imported modules is discarded.

    asked: (entry, takes, kind, options) of each. calls: whether to call each that has no problem,
        too. The call may show one, which is a further line: that before counts if the call ends the
        process. A timer ends one that takes longer than `_CALL_S`: it may need a GPU, or compile.
    """
    answers = _answers(parent)
    for number, (entry, takes, kind, options) in enumerate(asked):
        instead, problem = _problem(entry, takes, kind, options)
        _write(answers, (number, instead or entry, problem))
        if calls and not (instead or problem) and takes in _IMPORTED and "torch" in sys.modules:
            for module in _IMPORTED[takes]:  # before the timer starts: slow on busy cores
                importlib.import_module(module)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, _CALL_S)
            _write(answers, (number, entry, _called(bound(imported(entry), options), takes)))
    os._exit(0)  # without waiting for threads that the imports started


def _answers(parent: int) -> int:
    """Prepare the child process; returns the file for its answers. What it prints is discarded."""
    die_with(parent)
    can_be_interrupted()
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return answers


def _write(answers: int, answer: Any) -> None:
    """Write a line of JSON; without `print`, which the import may have replaced."""
    os.write(answers, f"{json.dumps(answer)}\n".encode())


def _problem(entry: str, takes: str, kind: str, options: Mapping[str, Any]) -> tuple[str, str]:
    """The entry of a class that an entry's function returns, and why neither can be used."""
    module_name, _, name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        return "", f"it cannot be imported: {_described(error)}"
    try:
        given = getattr(module, name)
    except AttributeError:
        return "", f"the module {module_name} has no {name}"
    except BaseException as error:  # from the module's __getattr__
        return "", f"it cannot be read: {described(error)}"
    problem = fault_of(given, takes, kind, options)
    if not problem or isinstance(given, type) or not is_called_with_nothing(given):
        return "", problem
    return _returned(given, takes, kind, problem)


def _returned(function: Any, takes: str, kind: str, problem: str) -> tuple[str, str]:
    """The same for a function without arguments, whose own problem is known."""
    try:
        returned = function()
    except BaseException as error:
        return "", f"it raises {_described(error)}"
    if not isinstance(returned, type):
        return "", problem
    if problem := fault_of(returned, takes, kind):
        return "", f"it returns {returned.__name__}: {problem}"
    entry = f"{returned.__module__}:{returned.__qualname__}"
    if "." in returned.__qualname__ or find(returned.__module__) is None:
        return "", f"it returns {entry}, which cannot be imported by that name; move the class"
    return entry, ""


def _called(given: Any, takes: str) -> str:
    """Return what a small call on the CPU shows to be wrong; "" if nothing, or if it fails."""
    with contextlib.suppress(BaseException):
        return {"attention": _attended, "model": _trained}[takes](given)
    return ""


def _attended(attention: Any) -> str:
    import torch

    from lmperf.own.attention import Fitted

    q, k, v = torch.randn(3, 1, 16, 16, device="cpu")
    return _no_tensor(Fitted(attention)(q, k, v, causal=True), "the output alone")


def _trained(model_class: Any) -> str:
    import torch

    from lmperf.own.model import build
    from lmperf.transformer.reference import unused_in
    from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

    if not is_model(model_class):  # it runs the project's model
        return _stepped(model_class) if is_step(model_class) else ""
    with torch.device("cpu"):
        model = build(model_class, ModelSize(32, 64, 1, 2), 64)
        # So many tokens that a mixture of experts uses all of them.
        logits = model(torch.randint(VOCAB_SIZE, (4, 64)))
    if fault := _no_tensor(logits, "the logits alone"):
        return fault
    logits.float().sum().backward()
    return unused_in(name for name, parameter in model.named_parameters() if parameter.grad is None)


def _stepped(step: Any) -> str:
    """What a train step returns, and whether it clips or scales all gradients."""
    import torch

    from lmperf.transformer.model import TransformerLM, cross_entropy
    from lmperf.transformer.sizes import ModelSize

    vocab, context = 64, 16
    with torch.device("cpu"):
        model = TransformerLM.of_size(ModelSize(32, 64, 1, 2), vocab, context)
        torch.nn.init.normal_(model.head.weight)  # gradients that are too long for any clipping
        tokens, targets = torch.randint(vocab, (2, 4, context))
    cross_entropy(model(tokens), targets).backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    # Making an optimizer of PyTorch imports its compiler, for seconds.
    group = {"params": [*model.parameters()], "lr": 0.0}
    optimizer = SimpleNamespace(zero_grad=model.zero_grad, step=lambda: None, param_groups=[group])
    if fault := _no_tensor(step(model, optimizer, tokens, targets), "the loss"):
        return fault
    factors = torch.stack(
        [
            (parameter.grad * grad).sum() / grad.square().sum()
            for parameter, grad in zip(model.parameters(), expected, strict=True)
        ]
    )
    low, high = factors.aminmax()
    is_scaled = high - low <= 0.01 * high.abs() and abs(high - 1) >= 0.01  # not so with NaN
    if not is_scaled:
        return ""
    return f"its gradients are all scaled by {high:.2g}, as clipping does; leave them as they are"


def _no_tensor(result: Any, wanted: str) -> str:
    import torch

    kind = type(result).__name__
    is_tensor = isinstance(result, torch.Tensor)
    return "" if is_tensor else f"it returns a {kind}; it must return {wanted}, a tensor"


def _described(error: BaseException) -> str:
    """An exception in words, with how to install a package that an import misses."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (missing or "").partition(".")[0]
    more = f"; {how_to_install(package)}" if package and find(package) is None else ""
    return f"{described(error)}{more}"
