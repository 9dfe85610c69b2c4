"""The benchmarks: one module each, with the file name (stem) of its CSV file and its template."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
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


def in_order(found: Iterable[str]) -> list[str]:
    """Sort stems in the order in which they are measured, that of the write-up's sections.

    Within a section, kernel tests come first, since they must pass, then the section's own
    benchmark. So a run that is stopped has measured the first sections.
    """

    def place(stem: str) -> tuple:
        one = load(stem)
        section = one.section or stem
        order = load(section).order if section in stems() else one.order
        return order, section, not one.is_check, stem != section, stem

    return sorted(found, key=place)


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
