"""The user's own implementations: named in the configuration, tried before anything is measured."""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from lmperf.benchmark import TAKES, Benchmark
from lmperf.errors import UserError, described
from lmperf.measuring.printable import one_line
from lmperf.sources import find

_LIMIT_S = 30.0
# What a class must derive from.
_CLASSES = {
    "attention": "torch.autograd.function.Function",
    "model": "torch.nn.modules.module.Module",
}
_CHILD = """
import json, sys
sys.path[:], uses, takes, limit_s = map(json.loads, sys.argv[1:])
from lmperf.custom import answer
answer(uses, takes, limit_s)
"""


def check_names(benchmark: Benchmark) -> None:
    """Whether each has a name of its own, and a module that could be imported; imports none.

    Raises:
        UserError: the name is taken by the project, or there is no such module.
    """
    taken = {one.name for one in benchmark.implementations}
    for name, own in benchmark.external.items():
        key = f"config: implementations.{benchmark.stem}.{name}"
        if name in taken:
            raise UserError(f"{key}: {name} is one of the project's own; give yours another name")
        if find(own.module) is None:
            raise UserError(
                f"{key} is {own.entry!r}: there is no module {own.module}; install it, or put it"
                f" below {Path.cwd()}"
            )


def broken_ones(benchmark: Benchmark) -> dict[str, str]:
    """Those that cannot be imported, are not there or cannot be called, and why, by name.

    They are imported in one process of their own: whatever an import does (print, raise, end
    Python, wait for ever), it does not do it to this one. What ends that process is asked again
    without those before it.
    """
    broken: dict[str, str] = {}
    waiting = list(benchmark.external.items())
    while waiting:
        said, end = _ask([own.entry for _, own in waiting], benchmark.takes)
        # One that ends its process is asked first in the next, where nothing else can be the cause.
        said = said or [end]
        for (name, own), problem in zip(waiting, said, strict=False):
            if problem:
                broken[name] = one_line(f"{own.entry}: {problem}")
        waiting = waiting[len(said) :]
    return broken


def _ask(uses: list[str], takes: str) -> tuple[list[str], str]:
    """What stands in the way of each, in order, as far as was said; and what ended the saying."""
    question = [json.dumps(value) for value in (list(map(str, sys.path)), uses, takes, _LIMIT_S)]
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, *question],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = child.wait(_LIMIT_S)
        how = f"exit code {status}" if status >= 0 else signal.Signals(-status).name
        end = f"importing it ends Python ({how})"
    except subprocess.TimeoutExpired:
        end = f"importing it takes longer than {_LIMIT_S:g} s"
    finally:
        with suppress(ProcessLookupError):  # with what it has started
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    with child.stdout as answers:
        # Not to its end: a process that has left the group may hold it open for ever.
        os.set_blocking(answers.fileno(), False)
        lines = (answers.read() or b"").splitlines()
    return [json.loads(line) for line in lines], end


def answer(uses: list[str], takes: str, limit_s: float) -> None:
    """Write what stands in the way of each to standard output; ends the process.

    What the modules print goes nowhere.
    """
    signal.alarm(2 * math.ceil(limit_s))  # should nobody be left to wait for it
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        for use in uses:
            print(json.dumps(_problem(use, takes)), file=answers, flush=True)
        os._exit(0)  # whatever threads it has started


def _problem(use: str, takes: str) -> str:
    module, _, name = use.partition(":")
    try:
        found = importlib.import_module(module)
    except BaseException as error:
        return f"it cannot be imported: {described(error)}"
    try:
        given = getattr(found, name)
    except AttributeError:
        return f"the module {module} has no {name}"
    except BaseException as error:
        return f"it cannot be read: {described(error)}"
    if isinstance(given, type):
        return "" if _is_taken(given, takes) else f"that is a class; it must be {TAKES[takes]}"
    return "" if callable(given) else f"that is no function; it must be {TAKES[takes]}"


def _is_taken(given: type, takes: str) -> bool:
    """Whether a class is of the kind that a benchmark takes; known by name, without torch."""
    bases = {f"{base.__module__}.{base.__qualname__}" for base in given.__mro__}
    return _CLASSES.get(takes) in bases
