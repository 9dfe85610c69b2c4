"""Make rows of collectives: an overhead for each call, and bytes over the rate of the bus."""

from __future__ import annotations

import pandas as pd

from lmperf.benchmarks import load
from lmperf.distributed.cost import bus_factor
from synthetic.builder import Builder

# Operation -> seconds of a call, GB/s of the bus.
H200_LINK = {
    "copy": (8e-6, 395.0),
    "all_reduce": (20e-6, 330.0),
    "all_gather": (15e-6, 285.0),
    "reduce_scatter": (15e-6, 285.0),
}
CPU_LINK = {name: (2e-4, rate / 200) for name, (_, rate) in H200_LINK.items()}


def collectives(build: Builder, preset: str, link=None, ranks=None) -> pd.DataFrame:
    """Rows of every case of a preset's grid with at most `ranks` ranks.

    link: operation -> seconds of a call, GB/s; None: that of the preset.
    """
    link = link or (H200_LINK if preset == "gpu" else CPU_LINK)
    benchmark = load("collectives")
    cases = [c for c in benchmark.cases(preset) if ranks is None or c.axes["ranks"] <= ranks]
    rows = []
    for group in benchmark.groups(cases):
        together = build.next_pass()
        for case in group:
            seconds = _seconds(case, link)
            device = {"host_ms": 0.03, "eager_ms": 1e3 * seconds} if preset == "gpu" else {}
            gate = {"max_error": 0.0, "error_bound": 0.5, "error_wrong_elements": 0.0}
            timed = build.timed(1e3 * seconds, together, again=case.implementation == "library")
            named = {"implementation": case.implementation, "phase": "forward"}
            rows.append({**case.axes, **named, **timed, **device, **gate})
    return pd.DataFrame(rows)


def _seconds(case, link) -> float:
    ranks, message = case.axes["ranks"], case.axes["message_bytes"]

    def call(operation: str) -> float:
        overhead, rate = link[operation]
        return overhead + bus_factor(operation, ranks) * message / rate / 1e9

    if case.implementation == "scatter_gather":
        return call("reduce_scatter") + call("all_gather")
    if case.implementation == "pass_round":
        return (ranks - 1) * 1.1 * call("copy")
    return call(case.axes["operation"])
