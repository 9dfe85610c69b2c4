"""The benchmark of warm-up: times of the first training steps of a new process.

Reporting computes mean and spread after any number of warm-up steps by leaving these steps out.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from lmperf.axes import model_axes
from lmperf.benchmark import Case, Implementation, Observed, grid, numbers
from lmperf.dtypes import MODEL_STORED_DTYPES
from lmperf.own.kinds import MODEL

STEPS = 15
_cells = partial(grid, batch=4, implementation="eager")


class Warmup(Observed):
    title = "Warm-up"
    section = "end_to_end"
    columns = (
        *numbers("step", "step_ms", "forward_ms", "backward_ms", "optimizer_ms"),
        # Growth of the allocator's reserved memory in a step; negative if it freed memory.
        *numbers("reserved_mib", signed=True),
    )
    results = ("step_ms",)
    axes = model_axes(MODEL_STORED_DTYPES)
    takes = MODEL
    phases = ("train_step",)
    implementations = (Implementation("eager"),)
    index = ("step",)
    limit_s = 300.0
    grids = {
        "cpu": [_cells(size="tiny", context_length=128, dtype="float32")],
        "gpu": [_cells(size=["0.13B", "0.97B"], context_length=256, dtype=MODEL_STORED_DTYPES)],
        "full": [_cells(size=["0.42B", "2.0B"], context_length=256, dtype=MODEL_STORED_DTYPES)],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.instruments.first_steps import measured

        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in self.axes)
        one = self.implementation(case.implementation)
        steps = measured(size, context, batch, dtype, device, STEPS, one if one.entry else None)
        return [{"step": number, **step} for number, step in enumerate(steps, start=1)]
