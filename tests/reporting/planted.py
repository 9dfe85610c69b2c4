"""Planted evidence: rows with just the values that a test is about.

    planted.evidence(
        planted.row("lrpe", ms=1.0, implementation="triton", shape="32768"),
        planted.row("lrpe", ms=1.2, implementation="compiled", shape="32768"),
    )

A row has the first value of each axis, eight rounds close to `ms`, and the environment of an H200.
"""

from __future__ import annotations

import itertools
from functools import cache

from lmperf.benchmark import Benchmark
from lmperf.benchmarks import load
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.render import Page

H200 = {
    "kind": "cuda",
    "device": "NVIDIA H200",
    "device_memory_gib": 140.4,
    "power_limit_w": 700.0,
    "driver": "580.1",
    "cuda": "13.0",
    "cudnn": 91900,
    "torch": "2.11.0",
    "triton": "3.6.0",
    "python": "3.12.3",
    "cpu_model": "Example CPU",
    "cores": 16,
    "measured_at": "2026-11-26T15:13:24+00:00",
}
CPU = {
    "kind": "cpu",
    "device": None,
    "torch": "2.13.0",
    "triton": "3.7.1",
    "python": "3.11.7",
    "cpu_model": "Example CPU, AVX-512",
    "cores": 2,
    "memory_gib": 24.0,
    "measured_at": "2026-11-26T15:13:24+00:00",
}
ROUNDS = (1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 1.0, 1.0)
_keys = itertools.count(1)


def row(stem: str, ms: float | None = None, spread: float = 1.0, **values) -> dict[str, str]:
    """A row of text of a benchmark.

    Args:
        ms: its time.
        spread: how much further apart than by 0.2 % its rounds are.
        values: of axes and columns; None leaves a column empty.
    """
    benchmark = load(stem)
    made = (
        dict.fromkeys(benchmark.kinds)
        | _defaults(stem)
        | {"status": "ok", "environment": "e1", "gpus": "GPU-1"}
    )
    made |= {"together": "one", "key": f"{next(_keys):016x}", "commit": "0123abc", "stem": stem}
    made |= {"measured_at": "2026-11-26T15:13:24+00:00", "seed": 1}
    if ms is not None:
        times = [ms * (1 + (factor - 1) * spread) for factor in ROUNDS]
        times = values.pop("rounds_ms", ";".join(f"{one:.9g}" for one in times))
        made |= {"median_ms": ms, "n": 40, "rounds_ms": times} | _ends(times)
    return {name: "" if of is None else str(of) for name, of in (made | values).items()}


def _ends(times: str | None) -> dict[str, float]:
    """The interval of a time: of so few rounds, and of stretches, the least and greatest."""
    parts = [*map(float, filter(None, (times or "").split(";")))]
    return {"low_ms": min(parts), "high_ms": max(parts)} if parts else {}


@cache
def _defaults(stem: str) -> dict[str, object]:
    benchmark: Benchmark = load(stem)
    grid = next(grid for grids in benchmark.grids.values() for grid in grids)
    cell = {axis.name: grid[axis.name][0] for axis in benchmark.axes if axis.name in grid}
    return cell | {"implementation": grid["implementation"][0], "phase": benchmark.phases[-1]}


def evidence(*rows: dict[str, str], machine: str = "here", facts: dict = H200, **more) -> Evidence:
    """Evidence with these rows.

    facts: of its environment. more: further fields of `Evidence`.
    """
    raw: dict[str, list[dict[str, str]]] = {}
    for one in rows:
        one = dict(one)
        raw.setdefault(one.pop("stem"), []).append(one)
    known = {"machine": machine, "preset": "gpu", "environments": {"e1": dict(facts)}}
    return Evidence(machine, known, raw, **more)


def page(name: str, of: Evidence, values: dict | None = None, **options) -> Page:
    """A page that has been rendered; `said`, `tables` and `figures` have what it shows.

    It is rendered once for an evidence, unless there are values or options. values: what the
    template gets from the one that includes it.
    """
    pages = {} if values or options else of.cached.setdefault("pages of tests", {})
    if name not in pages:
        pages[name] = Page(name, of, **options)
        pages[name].render(**values or {})
    return pages[name]


def printed(made: Page) -> list[float]:
    """The numbers that the sentences of a page print, unrounded, in their order."""
    return [float(one.value) for one in made.numbers if one.kind == "sentence"]
