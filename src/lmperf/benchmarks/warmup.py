"""The benchmark of warm-up: times of the first training steps of a new process.

Reporting computes mean and spread after any number of warm-up steps by leaving these steps out.
"""

from __future__ import annotations

from typing import Any

from lmperf.axes import SIZE, dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Observed, numbers
from lmperf.dtypes import MODEL_STORED_DTYPES

STEPS = 15


class Warmup(Observed):
    title = "Warm-up"
    section = "end_to_end"
    columns = (
        *numbers("step", "step_ms", "forward_ms", "backward_ms", "optimizer_ms"),
        # Growth of the allocator's reserved memory in a step; negative if it freed memory.
        *numbers("reserved_mib", signed=True),
    )
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
        dtype_axis(MODEL_STORED_DTYPES),
    )
    takes = "model"
    phases = ("train_step",)
    implementations = (Implementation("eager"),)
    index = ("step",)
    limit_s = 300.0
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
                "size": ["0.13B", "0.42B", "0.97B", "2.0B"],
                "context_length": [256],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["eager"],
            }
        ],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.instruments.first_steps import measured

        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in self.axes)
        entry = self.implementation(case.implementation).entry or None
        steps = measured(size, context, batch, dtype, device, STEPS, entry)
        return [{"step": number, **step} for number, step in enumerate(steps, start=1)]
