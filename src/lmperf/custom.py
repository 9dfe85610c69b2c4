"""Check the user's own implementations in the configuration, before anything is measured."""

from __future__ import annotations

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
from lmperf.sources import find

_LIMIT_S = 30.0
# What a benchmark takes (`Benchmark.takes`) -> the base classes, of which a custom class has one.
_BASES = {
    "attention": {"torch.autograd.function.Function"},
    "model": {"torch.nn.modules.module.Module"},
    "strategy": {"torch.nn.modules.module.Module", "torch.optim.optimizer.Optimizer"},
}
_CHILD = """
import sys
sys.path[:] = {path!r}
from lmperf.custom import answer
answer({entry!r}, {takes!r}, {limit_s!r})
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

    A reason is one line.
    """
    found = {
        name: problem_of(one.entry, benchmark.takes) for name, one in benchmark.external.items()
    }
    return {name: problem for name, problem in found.items() if problem}


def problem_of(entry: str, takes: str) -> str:
    """Return why a function or class cannot be used as what a benchmark takes; "" if it can.

    A child process imports it, so that the import cannot print, exit or hang in this process.
    Processes that the import has started are ended, even in other sessions: this process adopts
    them if their parent ends.
    """
    path = [str(folder) for folder in sys.path]
    child = _CHILD.format(path=path, entry=entry, takes=takes, limit_s=_LIMIT_S)
    ours = family(os.getpid())
    adopt_orphans()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", child],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(_LIMIT_S)
        how = f"exit code {status}" if status >= 0 else signal.Signals(-status).name
        end = f"importing it ends Python ({how})"
    except subprocess.TimeoutExpired:
        end = f"importing it takes longer than {_LIMIT_S:g} s"
    finally:
        process.kill()
        process.wait()
        end_children(but=ours)
        adopt_orphans(False)
    with process.stdout as answers:
        # Do not wait for the end of the pipe: a process that left the group may hold it open.
        os.set_blocking(answers.fileno(), False)
        found = answers.read()
    problem = json.loads(found) if found else end
    return one_line(f"{entry}: {problem}") if problem else ""


def answer(entry: str, takes: str, limit_s: float) -> None:
    """Import an entry and print its problem as JSON; then end the process.

    Runs in the child process. Output of the imported module is discarded.
    """
    signal.alarm(2 * math.ceil(limit_s))  # ends this process if the parent has died
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(json.dumps(_problem(entry, takes)), file=answers, flush=True)
        os._exit(0)  # without waiting for threads that the import started


def _problem(entry: str, takes: str) -> str:
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
    if isinstance(found, type):
        return "" if _is_accepted(found, takes) else f"that is a class; it must be {TAKES[takes]}"
    # A `transformer.steps.StepMaker` holds the way to run a model; importing it imports torch.
    if callable(found) or callable(getattr(found, "way", None)):
        return ""
    return f"that is not a function; it must be {TAKES[takes]}"


def _installing(error: ModuleNotFoundError) -> str:
    """How to install what an import misses; "" if it is a module of a package that is there."""
    package = (error.name or "").partition(".")[0]
    return f"; pip install {package}" if package and find(package) is None else ""


def _is_accepted(found: type, takes: str) -> bool:
    """Whether a class has a base class that the benchmark requires.

    The names of the classes are compared, so that torch need not be imported.
    """
    bases = {f"{base.__module__}.{base.__qualname__}" for base in found.__mro__}
    return not bases.isdisjoint(_BASES.get(takes, ()))
