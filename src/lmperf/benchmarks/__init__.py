"""The benchmarks: one module each, with the file name (stem) of its CSV file and its template."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from lmperf.benchmark import Benchmark, Implementation
from lmperf.errors import UserError, described


@cache
def stems() -> tuple[str, ...]:
    """The stems (names) of all benchmarks, one for each module of this package, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(stem: str, external: Mapping[str, str | Implementation] | None = None) -> Benchmark:
    """The benchmark that the module `lmperf.benchmarks.<stem>` declares.

    external: name -> peer or custom implementation; see `Benchmark`.

    Raises:
        UserError: the module cannot be imported, or does not declare exactly one benchmark.
    """
    return _declared(stem)(stem, external)


@cache
def _declared(stem: str) -> type[Benchmark]:
    try:
        module = importlib.import_module(f"lmperf.benchmarks.{stem}")
    except (Exception, SystemExit) as error:
        raise UserError(f"benchmark {stem} cannot be imported: {described(error)}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Benchmark)
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise UserError(f"{module.__file__}: must declare one Benchmark, not {len(found)}")
    if lacking := [name for name in ("title", "axes", "grids") if not hasattr(found[0], name)]:
        raise UserError(f"{module.__file__}: {found[0].__name__} lacks {', '.join(lacking)}")
    return found[0]
