"""The benchmark of activation checkpointing: a train step by the size of the checkpoints."""

from __future__ import annotations

from functools import partial

from lmperf.axes import model_axes
from lmperf.benchmark import Case, Implementation, Timed, Workload, grid
from lmperf.dtypes import MODEL_STORED_DTYPES

_ENTRY = "lmperf.transformer.checkpointing:Segments"
# Layers of a checkpoint; the eager model without checkpoints is the baseline.
_LAYERS = (1, 2, 4, 8, 16, 32)
_NESTED = 4


def _cells(size: str, context: int, dtype: str, layers: tuple[int, ...]) -> dict[str, list]:
    names = ["eager", *(f"checkpoint_{count}" for count in layers), f"nested_{_NESTED}"]
    return grid(size=size, context_length=context, batch=4, dtype=dtype, implementation=names)


class Checkpointing(Timed):
    title = "Activation checkpointing"
    section = "memory"
    axes = model_axes(MODEL_STORED_DTYPES)
    phases = ("train_step",)
    clock = "step"
    # A step lasts for up to 1.5 s, and costs of a third need no more steps than these.
    steps = 8
    limit_s = 600.0
    implementations = (
        Implementation("eager", _ENTRY, {"layers": 0}),
        *(Implementation(f"checkpoint_{n}", _ENTRY, {"layers": n}) for n in _LAYERS),
        Implementation(f"nested_{_NESTED}", _ENTRY, {"layers": _NESTED, "nested": True}),
    )
    grids = {
        "cpu": [_cells("tiny", 256, "float32", (1, 4))],
        "gpu": [_cells("0.97B", 1024, "autocast_bfloat16", (1, 4, 16))],
        # Without checkpoints this step does not fit into an H200; the one above shows what
        # recomputation costs.
        "full": [_cells("3.4B", 2048, "autocast_bfloat16", _LAYERS)],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.precision import precision
        from lmperf.transformer.model_problem import ModelProblem

        self.require(case, device)
        size, context, batch, dtype = (case.axes[axis.name] for axis in self.axes)
        if not shared:
            shared["problem"] = ModelProblem(size, context, batch, device, seed)
        problem: ModelProblem = shared["problem"]
        model = self.callable_of(case.implementation)(problem.model)
        phases = problem.phases(model, dtype)
        return Workload(
            {name: phases[name] for name in self.phases},
            gate=partial(problem.gate, model, dtype),
            expect=partial(problem.expect, dtype),
            freshen=problem.freshen,
            check=partial(problem.check, dtype),
            resident=problem.resident,
            context=partial(precision, dtype),
        )
