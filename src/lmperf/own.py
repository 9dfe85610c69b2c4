"""The user's own implementations: named in the configuration, found before anything is measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from lmperf.benchmark import Benchmark
from lmperf.errors import UserError


def check_names(benchmark: Benchmark) -> None:
    """Whether each has a name of its own, and a module that could be imported.

    Raises:
        UserError: the name is taken by the project, or there is no such module.
    """
    grids = (grid for grids in benchmark.grids.values() for grid in grids)
    taken = {*benchmark.implementations, *(name for g in grids for name in g["implementation"])}
    for name, own in benchmark.own_implementations.items():
        key = f"config: implementations.{benchmark.stem}.{name}"
        if name in taken:
            raise UserError(f"{key}: {name} is one of the project's own; give yours another name")
        if not _exists(own.module):
            raise UserError(
                f"{key} is {own.use!r}: there is no module {own.module}; install it, or put it"
                f" below {Path.cwd()}"
            )


def check_functions(benchmark: Benchmark) -> None:
    """Whether each can be imported and is there to be called; imports them.

    Raises:
        UserError: naming the implementation and what stands in the way.
    """
    for name, own in benchmark.own_implementations.items():
        key = f"config: implementations.{benchmark.stem}.{name} is {own.use!r}"
        try:
            found = benchmark.callable_of(name)
        except AttributeError:
            function = own.use.partition(":")[-1]
            raise UserError(f"{key}: the module {own.module} has no {function}") from None
        except ImportError as error:
            raise UserError(f"{key}: it cannot be imported: {error}") from None
        if not callable(found):
            raise UserError(f"{key}: that is no function")


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
