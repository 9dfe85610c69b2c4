"""The benchmark of peak memory, measured and predicted, of inference and of a training step."""

from __future__ import annotations

from functools import partial
from typing import Any

from lmperf.axes import model_axes
from lmperf.benchmark import Case, Implementation, Observed, grid, numbers, texts
from lmperf.dtypes import MODEL_STORED_DTYPES
from lmperf.own.kinds import MODEL
from lmperf.transformer.sizes import SWEPT

_MIB = 2**20
_cells = partial(grid, batch=4, dtype=MODEL_STORED_DTYPES, implementation="eager")


class Memory(Observed):
    title = "Memory"
    order = 30
    columns = (
        *numbers("predicted_mib", "parameters_mib", "weight_copies_mib", "gradients_mib"),
        *numbers(
            "optimizer_mib", "activations_mib", "temporary_mib", "inputs_mib", "workspace_mib"
        ),
        *texts("instrument"),
    )
    results = ("peak_mib",)
    axes = model_axes(MODEL_STORED_DTYPES)
    takes = MODEL
    phases = ("forward", "train_step")
    implementations = (Implementation("eager"),)
    limit_s = 180.0
    grids = {
        "cpu": [
            _cells(size="tiny", context_length=[128, 512]),
            _cells(size="0.13B", context_length=128, dtype="float32"),
        ],
        "gpu": [_cells(size=SWEPT, context_length=[256, 1024])],
        "full": [
            _cells(size=SWEPT, context_length=[128, 512]),
            _cells(size="3.4B", context_length=2048),
        ],
    }
    head = {
        "cpu": [{"size": ["tiny"], "context_length": [512]}],
        "gpu": [{"size": ["0.97B"], "context_length": [1024]}],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.measuring.peak_memory import CACHING_ALLOCATOR, LIVE_TENSORS, peak_memory
        from lmperf.own.model import builder, class_of, runnable
        from lmperf.transformer.footprint import predicted_memory
        from lmperf.transformer.model_problem import ModelProblem
        from lmperf.transformer.sizes import SIZES

        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in self.axes)
        given = class_of(self, case.implementation)
        problem = ModelProblem(size, context, batch, device, seed, builder(given))
        run = {"forward": problem.inference, "train_step": problem.train_step}[phase]
        if self.implementation(case.implementation).to_compile:
            require_compiler(device)
            run = partial(run, model=runnable(given, problem.model, compiled=True))
        run(dtype)  # the first step allocates optimizer state and cuBLAS workspace
        peak = peak_memory(lambda: run(dtype), device, problem.resident)
        instrument = CACHING_ALLOCATOR if device == "cuda" else LIVE_TENSORS
        row = {"peak_mib": peak / _MIB, "instrument": instrument}
        if given is not None:  # a custom model has no closed form
            return [row]
        predicted = predicted_memory(SIZES[size], context, batch, dtype, phase, device)
        named = {f"{name}_mib": size / _MIB for name, size in predicted.items() if name != "peak"}
        return [{**row, "predicted_mib": predicted["peak"] / _MIB, **named}]
