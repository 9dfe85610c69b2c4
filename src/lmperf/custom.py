"""Check the user's own implementations in the configuration, before anything is measured."""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

from lmperf.benchmark import TAKES, Benchmark
from lmperf.errors import UserError, described
from lmperf.measuring.printable import one_line
from lmperf.measuring.process import adopt_orphans, end_children, family
from lmperf.sources import find, tree_of

_LIMIT_S = 30.0
# What a benchmark takes (`Benchmark.takes`) -> the base classes, of which a custom class has one.
_BASES = {
    "attention": {"torch.autograd.function.Function"},
    "model": {"torch.nn.modules.module.Module"},
    "strategy": {"torch.nn.modules.module.Module", "torch.optim.optimizer.Optimizer"},
}
_CHILD = """
import json, sys
sys.path[:], entries, takes, limit_s = map(json.loads, sys.argv[1:])
from lmperf.custom import answer
answer(entries, takes, limit_s)
"""


def check_names(benchmark: Benchmark) -> None:
    """Check that each custom implementation has an unused name and an existing module.

    Imports none of the modules.

    Raises:
        UserError: the project has an implementation of that name, or the module does not exist.
    """
    taken = {one.name for one in benchmark.implementations}
    for name, custom in benchmark.external.items():
        key = f"config: implementations.{benchmark.stem}.{name}"
        if name in taken:
            raise UserError(f"{key}: the project has an implementation {name}; choose another name")
        if find(custom.module) is None:
            raise UserError(
                f"{key} is {custom.entry!r}: there is no module {custom.module}; install it, or"
                f" put it below {Path.cwd()}"
            )


def broken_ones(benchmark: Benchmark) -> dict[str, str]:
    """Return name -> reason of the peers and custom implementations that cannot be used.

    A child process imports them, so that no import can print, exit or hang in this process. If an
    import ends the child, a new child imports the remaining ones. A reason is one line.
    """
    broken: dict[str, str] = {}
    waiting = list(benchmark.external.items())
    while waiting:
        problems, end = _ask([one.entry for _, one in waiting], benchmark.takes)
        # Without any answer, the import of the first entry ended the child.
        problems = problems or [end]
        for (name, one), problem in zip(waiting, problems, strict=False):
            if problem:
                broken[name] = one_line(f"{one.entry}: {problem}")
        waiting = waiting[len(problems) :]
    return broken


def _ask(entries: list[str], takes: str) -> tuple[list[str], str]:
    """Import entries in a child; return the answered problems ("" if none) and how it ended.

    Processes that the imports have started are ended, even in other sessions: this process adopts
    them if their parent ends.
    """
    question = [json.dumps(value) for value in (list(map(str, sys.path)), entries, takes, _LIMIT_S)]
    ours = family(os.getpid())
    adopt_orphans()
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
        if child.poll() is None:
            child.kill()
            child.wait()
        end_children(but=ours)
        adopt_orphans(False)
    with child.stdout as answers:
        # Do not wait for the end of the pipe: a process that left the group may hold it open.
        os.set_blocking(answers.fileno(), False)
        lines = (answers.read() or b"").splitlines()
    return [json.loads(line) for line in lines], end


def answer(entries: list[str], takes: str, limit_s: float) -> None:
    """Import entries and print the problem of each as a line of JSON; then end the process.

    Runs in the child process. Output of the imported modules is discarded.
    """
    signal.alarm(2 * math.ceil(limit_s))  # ends this process if the parent has died
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        for entry in entries:
            print(json.dumps(_problem(entry, takes)), file=answers, flush=True)
        os._exit(0)  # without waiting for threads that an import started


def _problem(entry: str, takes: str) -> str:
    module_name, _, name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        return f"it cannot be imported: {described(error)}{_installing(module_name, error)}"
    except BaseException as error:
        return f"it cannot be imported: {described(error)}"
    try:
        found = getattr(module, name)
    except AttributeError:
        return f"the module {module_name} has no {name}"
    except BaseException as error:  # from the module's __getattr__
        return f"it cannot be read: {described(error)}"
    if isinstance(found, type):
        return "" if _is_accepted(found, takes) else f"that is a class; it must be {TAKES[takes]}"
    # A `transformer.steps.StepMaker` holds the way to run a model; importing it imports torch.
    if callable(found) or callable(getattr(found, "way", None)):
        return ""
    return f"that is not a function; it must be {TAKES[takes]}"


def _installing(module: str, error: ModuleNotFoundError) -> str:
    """How to install what `module` imports and what is missing; "" if no package is missing."""
    missing = [error.name or "", *_imported(module)]
    packages = dict.fromkeys(name.partition(".")[0] for name in missing)
    packages = [name for name in packages if name and find(name) is None]
    return f"; pip install {' '.join(packages)}" if packages else ""


def _imported(module: str) -> list[str]:
    """The modules that the top level of a module imports, except inside `try` or `if`."""
    place = find(module)
    if place is None or place.source is None:
        return []
    body = tree_of(place.source).body
    found = [one.name for node in body if isinstance(node, ast.Import) for one in node.names]
    froms = (node for node in body if isinstance(node, ast.ImportFrom) and not node.level)
    return [*found, *(node.module for node in froms if node.module)]


def _is_accepted(found: type, takes: str) -> bool:
    """Whether a class has a base class that the benchmark requires.

    The names of the classes are compared, so that torch need not be imported.
    """
    bases = {f"{base.__module__}.{base.__qualname__}" for base in found.__mro__}
    return not bases.isdisjoint(_BASES.get(takes, ()))
