"""The benchmark of profiles: the kernels of each phase, and the time of attention's parts.

Each kernel is a row with its full name. Reporting classifies kernels, so better rules need no new
measurement. Profiler ranges mark the parts of attention; `lmperf.instruments.nsight` marks them in
Nsight Systems.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from lmperf.axes import model_axes
from lmperf.benchmark import Case, Observed, Phase, Unsupported, Value, grid, numbers, texts
from lmperf.benchmarks.end_to_end import EndToEnd
from lmperf.dtypes import MODEL_STORED_DTYPES, STEP_DTYPES, dtype_of
from lmperf.own.kinds import MODEL
from lmperf.transformer.rungs import RUNGS, STEPS_ALONE

_BF16 = "autocast_bfloat16"
_PROFILED = {*(rung.implementation for rung in RUNGS), "sdpa_compiled_blocks"}
_cells = partial(grid, batch=4)
# Every rung of the ladder, at one size.
_at_ladder = partial(_cells, size="0.97B", context_length=1024)
_WARM_UPS = 2
_WALLS = 3
# FLOPs of a softmax per element: maximum, difference, exponential, sum, division.
_SOFTMAX_FLOPS = 5


class Profiles(Observed):
    title = "Profiles"
    order = 60
    columns = (
        *texts("table", "name", "trace"),
        *numbers("instances", "total_ms", "median_us", "min_us", "max_us", "std_us"),
        *numbers("wall_ms", "flops_share"),
    )
    results = ("total_ms",)
    axes = model_axes(STEP_DTYPES)
    takes = MODEL
    phases = ("forward", "backward", "forward_backward", "train_step")
    index = ("table", "name")
    implementations = tuple(one for one in EndToEnd.implementations if one.name in _PROFILED)
    grids = {
        "cpu": [_cells(size="tiny", context_length=128, dtype="float32", implementation="eager")],
        "gpu": [
            *(_at_ladder(dtype=rung.dtype, implementation=rung.implementation) for rung in RUNGS),
            _at_ladder(dtype=_BF16, implementation="sdpa_compiled_blocks"),
        ],
        "full": [
            _cells(
                size=["0.13B", "0.97B", "3.4B"],
                context_length=512,
                dtype=MODEL_STORED_DTYPES,
                implementation="eager",
            )
        ],
    }
    _built: Case | None = None
    _ready: Mapping[str, Phase] = MappingProxyType({})
    head = {
        "cpu": [{"size": ["tiny"]}],
        "gpu": [{"context_length": [1024], "dtype": [_BF16], "implementation": ["graph"]}],
    }

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> bool:
        """bf16 weights need a train step of the ladder."""
        return dtype_of(axes["dtype"]).storage != "float32" and implementation not in STEPS_ALONE

    def phases_of(self, case: Case) -> tuple[str, ...]:
        """All phases, or the train step alone: of TF32, and of what has no other phase."""
        alone = case.implementation in STEPS_ALONE or case.axes["dtype"] == "tf32"
        return tuple(phase for phase in self.phases if phase == "train_step" or not alone)

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.instruments.profiling import durations, events_of, range_times, trace_path
        from lmperf.precision import precision
        from lmperf.transformer.sizes import SIZES

        if self.require(case, device).compiles:
            require_compiler(device)
        size, _, _, dtype = (case.axes[axis.name] for axis in self.axes)
        if case != self._built:  # the phases share a model, which only the last one trains
            self._ready = {}  # frees the model before
            self._ready, self._built = self._phases_of(case, device, seed), case
        if phase not in self._ready:
            raise Unsupported(f"{case.implementation} has a train step only")
        timed = self._ready[phase]
        kept = trace_path(self.traces, case, phase)
        with precision(dtype):
            for _ in range(_WARM_UPS):
                timed.run(timed.before())
            wall_ms = statistics.median(_wall_ms(timed, device) for _ in range(_WALLS))
            state = timed.before()
            events = events_of(partial(timed.run, state), device, kept)
        shared = {"wall_ms": wall_ms, "trace": kept.name if kept else None}
        rows = kernel_rows(durations(events, device))
        ranges = range_times(events, device) if phase == "forward" else {}
        if any(ranges.values()):  # of lmperf's plain attention, or of a user's that names them
            rows += range_rows(ranges, SIZES[size].d_head)
        return [{**row, **shared} for row in rows]

    def _phases_of(self, case: Case, device: str, seed: int) -> dict[str, Phase]:
        from lmperf.instruments.profiling import ranged_attention
        from lmperf.own.model import runnable
        from lmperf.own.optimizer import plugged
        from lmperf.transformer.implementations import with_attention
        from lmperf.transformer.model import twin_of
        from lmperf.transformer.model_problem import ModelProblem
        from lmperf.transformer.steps import StepMaker, step_maker

        *cell, dtype = (case.axes[axis.name] for axis in self.axes)
        one = self.implementation(case.implementation)
        given, build = plugged(one, self.callable_of(one.name))
        problem = ModelProblem(*cell, device, seed, build, step_maker(given).prepare(dtype))
        if isinstance(given, StepMaker):
            step = given.step(
                twin_of(problem.model), problem.optimizer, problem.tokens, problem.targets, dtype
            )
            return {"train_step": problem.step_phase(step)}
        model = runnable(given, problem.model, one.to_compile)
        if case.implementation == "eager":
            model = with_attention(problem.model, ranged_attention)
        return problem.phases(model, dtype)


def _wall_ms(timed: Any, device: str) -> float:
    import torch

    synchronize = getattr(torch, device).synchronize
    state = timed.before()
    synchronize()
    began = time.perf_counter()
    timed.run(state)
    synchronize()
    return (time.perf_counter() - began) * 1e3


def kernel_rows(found: dict[str, list[float]]) -> list[dict[str, Any]]:
    """One row per kernel with its times, the longest total time first.

    found: kernel name -> duration of each call in microseconds.
    """
    ordered = sorted(found, key=lambda name: -sum(found[name]))
    return [_kernel_row(name, found[name]) for name in ordered]


def _kernel_row(name: str, times: list[float]) -> dict[str, Any]:
    return {
        "table": "kernel",
        "name": name,
        "instances": len(times),
        "total_ms": sum(times) / 1e3,
        "median_us": statistics.median(times),
        "min_us": min(times),
        "max_us": max(times),
        "std_us": statistics.pstdev(times),
    }


def range_rows(times: dict[str, float], d_head: int) -> list[dict[str, Any]]:
    """One row per part of attention (scores, softmax, values): its time and share of the FLOPs.

    times: part -> microseconds.
    """
    from lmperf.instruments.profiling import SCORES, SOFTMAX, VALUES

    # FLOPs per element of the scores: 2 d_head in each of the two matmuls.
    flops = {SCORES: 2 * d_head, SOFTMAX: _SOFTMAX_FLOPS, VALUES: 2 * d_head}
    flops_in_all = sum(flops.values())
    return [
        {
            "table": "attention",
            "name": name,
            "total_ms": us / 1e3,
            "flops_share": flops[name] / flops_in_all,
        }
        for name, us in times.items()
    ]
