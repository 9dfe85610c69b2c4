"""The benchmark of profiles: the kernels of each phase, and the time of attention's parts.

Each kernel is a row with its full name. Reporting classifies kernels, so better rules need no new
measurement. Profiler ranges mark the parts of attention; `lmperf.instruments.nsight` marks them in
Nsight Systems.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lmperf.axes import SIZE, dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Observed, numbers, texts
from lmperf.dtypes import MODEL_STORED_DTYPES
from lmperf.names import size_words

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
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
        dtype_axis(MODEL_STORED_DTYPES),
    )
    takes = "model"
    phases = ("forward", "backward", "forward_backward", "train_step")
    index = ("table", "name")
    implementations = tuple(
        Implementation(name, f"lmperf.transformer.implementations:{name}")
        for name in ("eager", "compiled_blocks", "sdpa_compiled_blocks", "triton")
    )
    grids = {
        "cpu": [
            {
                "size": ["tiny"],
                "context_length": [128],
                "batch": [4],
                "dtype": ["float32"],
                "implementation": ["eager"],
            }
        ],
        "gpu": [
            {
                "size": ["0.13B", "0.97B", "3.4B"],
                "context_length": [512],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["eager"],
            },
            {
                "size": ["0.97B"],
                "context_length": [512],
                "batch": [4],
                "dtype": ["autocast_bfloat16"],
                "implementation": ["compiled_blocks", "sdpa_compiled_blocks", "triton"],
            },
        ],
    }

    head = {
        "cpu": [{"size": ["tiny"]}],
        "gpu": [
            {
                "size": ["0.97B"],
                "dtype": ["autocast_bfloat16"],
                "implementation": ["eager", "compiled_blocks"],
            }
        ],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.instruments.profiling import durations, events_of, range_times, ranged_attention
        from lmperf.precision import precision
        from lmperf.transformer.custom import runnable
        from lmperf.transformer.implementations import with_attention
        from lmperf.transformer.problem import ModelProblem
        from lmperf.transformer.sizes import SIZES

        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in self.axes)
        given = self.callable_of(case.implementation)
        problem = ModelProblem(size, context, batch, device, seed, given)
        model = runnable(given, problem.model)
        if case.implementation == "eager":
            model = with_attention(problem.model, ranged_attention)
        timed = problem.phases(model, dtype)[phase]
        kept = _trace_path(case, phase)
        with precision(dtype):
            for _ in range(_WARM_UPS):
                timed.run(timed.before())
            wall_ms = statistics.median(_wall_ms(timed, device) for _ in range(_WALLS))
            state = timed.before()
            events = events_of(partial(timed.run, state), device, kept)
        shared = {"wall_ms": wall_ms, "trace": kept.name if kept else None}
        rows = kernel_rows(durations(events, device))
        if case.implementation == "eager" and phase == "forward":
            rows += range_rows(range_times(events, device), SIZES[size].d_head)
        return [{**row, **shared} for row in rows]


def _trace_path(case: Case, phase: str) -> Path | None:
    directory = os.environ.get("LMPERF_TRACES")
    if directory is None:
        return None
    values = [size_words(value) if axis == "size" else str(value) for axis, value in case.cell]
    return Path(directory) / f"{'-'.join([*values, case.implementation, phase])}.json.gz"


def _wall_ms(timed: Any, device: str) -> float:
    from lmperf.measuring.clock import synchronizer

    synchronize: Callable[[], None] = synchronizer(device)
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
