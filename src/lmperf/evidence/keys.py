"""Compute the key of a row: one digest of everything that the row's numbers depend on.

The key of a row covers

- its cell: the values of its axes, with sizes and dtypes replaced by their definitions
  (`Axis.meaning`);
- its implementation: the code that its entry point reaches, options, tolerance and version;
- its problem: the code that the benchmark's class reaches, without the class attributes that only
  declare the grid or the report (`closure.DECLARATIONS`);
- the method, by `METHOD_VERSION`; and the environment;
- of a ranked benchmark on several GPUs, their number and their links.

A row is fresh if the key computed today equals the key stored in the row. Adding a size, a dtype,
an implementation or a cell changes no other row's key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lmperf.benchmark import Benchmark, Implementation, is_ranked
from lmperf.evidence.closure import closure_of
from lmperf.evidence.store import text_of
from lmperf.evidence.syntax import digest

# The version of the method (how numbers are measured). Raise it with every change of the method
# that can change a number.
METHOD_VERSION = 8

Code = dict[str, Any]


def code_of(benchmark: Benchmark, name: str) -> Code:
    """The part of a key that is the same for all cells of an implementation.

    `problem` and `implementation` are fingerprints of code; the other entries are the version of
    the method and what the implementation declares.

    Raises:
        KeyError: the benchmark has no such implementation.
    """
    implementation = benchmark.implementation(name)
    entry = implementation.entry
    models = [
        [*model, closure_of(model[1]).fingerprint] for model in implementation.models if model[1]
    ]
    runs_others = implementation.origin != "project" or models
    # A benchmark that takes no custom implementation may have peers: it runs them as they are.
    modules = benchmark.takes.adapters if runs_others and benchmark.takes else ()
    adapters = [closure_of(module).fingerprint for module in modules]
    return {
        "problem": closure_of(benchmark.entry).fingerprint,
        "implementation": closure_of(entry).fingerprint if entry else None,
        "method": METHOD_VERSION,
        "version": implementation.version,
        "entry": entry,
        "options": dict(implementation.options),
        "tolerance": implementation.tolerance,
        "compiles": implementation.compiles,
        "needs_cuda": implementation.needs_cuda,
        **({"models": models} if models else {}),
        **({"adapters": adapters} if adapters else {}),
    }


def row_key(
    benchmark: Benchmark,
    columns: Mapping[str, object],
    environment: str,
    topology: str = "",
    code: Code | None = None,
) -> str:
    """The key that a row with these columns would get if it were measured now.

    Args:
        topology: the devices and their links (`machine.topology_of`); only keys of ranked
            benchmarks cover it.
        code: an earlier result of `code_of`; None: today's.

    Raises:
        KeyError: the benchmark has no such implementation.
        ValueError: a dtype is unknown.
    """
    implementation = benchmark.implementation(str(columns["implementation"]))
    cell = _cell(benchmark, columns)
    supported = _is_supported(implementation, columns)
    held = [benchmark.stem, cell, implementation.name, supported, columns["phase"]]
    devices = [topology] if topology and is_ranked(benchmark) else []
    code = code or code_of(benchmark, implementation.name)
    return digest(json.dumps([*held, code, environment, *devices], sort_keys=True))


def _cell(benchmark: Benchmark, columns: Mapping[str, object]) -> dict[str, object]:
    cell: dict[str, object] = {}
    for axis in benchmark.axes:
        text = text_of(columns[axis.name])
        cell[axis.name] = axis.meaning(text) if axis.meaning and text else text
    return cell


def _is_supported(implementation: Implementation, columns: Mapping[str, object]) -> bool:
    only = implementation.only.items()
    return all(text_of(columns[axis]) in map(text_of, values) for axis, values in only)


def is_fresh(
    benchmark: Benchmark, row: Mapping[str, object], environment: str, topology: str = ""
) -> bool:
    """Whether a row's stored key equals the key that it would get if it were measured now.

    A row is not fresh if the benchmark has no such implementation or axis value.
    """
    choices = {axis.name: axis.choices for axis in benchmark.axes if axis.choices}
    if row["implementation"] not in benchmark.known:
        return False
    if any(row[name] and row[name] not in values for name, values in choices.items()):
        return False
    return row["key"] == row_key(benchmark, row, environment, topology)
