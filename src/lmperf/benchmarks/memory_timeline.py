"""The benchmark that records memory over time in a forward pass and in a training step.

Its rows hold the curve of memory by category, the largest tensors at the peak, and what one block
keeps for the backward pass.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from lmperf.axes import model_axes
from lmperf.benchmark import Case, Implementation, Observed, grid, numbers, texts
from lmperf.dtypes import MODEL_STORED_DTYPES
from lmperf.own.kinds import MODEL

POINTS = 250
LARGEST = 8
_MIB = 2**20
_cells = partial(grid, batch=4, implementation="eager")


class MemoryTimeline(Observed):
    title = "Memory over time"
    section = "memory"
    columns = (
        *texts("table", "name", "tensor", "made_in", "frame"),
        *numbers("position", "parameters_mib", "optimizer_mib", "inputs_mib", "gradients_mib"),
        *numbers("activations_mib", "temporary_mib", "recorded_mib", "size_mib", "predicted_mib"),
    )
    results = ("size_mib", "recorded_mib")
    axes = model_axes(MODEL_STORED_DTYPES)
    takes = MODEL
    phases = ("forward", "train_step")
    implementations = (Implementation("eager"),)
    # Two phases have the same position if the first of them allocates nothing.
    index = ("table", "position", "name")
    grids = {
        "cpu": [_cells(size="tiny", context_length=128, dtype="float32")],
        "gpu": [_cells(size=["0.13B", "2.0B"], context_length=512, dtype=MODEL_STORED_DTYPES)],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.instruments.memory_over_time import alive_at, curve, thinned
        from lmperf.measuring.peak_memory import peak_memory
        from lmperf.own.model import builder, class_of
        from lmperf.transformer.footprint import predicted_memory
        from lmperf.transformer.model_problem import ModelProblem
        from lmperf.transformer.sizes import SIZES

        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in self.axes)
        given = class_of(self, case.implementation)
        problem = ModelProblem(size, context, batch, device, seed, builder(given))
        run = {"forward": problem.inference, "train_step": problem.train_step}[phase]
        run(dtype)
        peak = peak_memory(lambda: run(dtype), device, problem.resident)
        problem.optimizer.zero_grad(set_to_none=True)
        recorder = _recorded(problem, phase, dtype)
        points = curve(recorder)
        moment, level = max(points, key=lambda point: sum(point[1].values()))
        rows = [
            {"table": "curve", "position": at, **_in_mib(values)}
            for at, values in thinned(points, POINTS)
        ]
        rows += [{"table": "phase", "position": at, "name": name} for at, name in recorder.phases]
        rows += [
            {
                "table": "block",
                "position": rank,
                "size_mib": block.size / _MIB,
                "name": block.category,
                "tensor": f"{block.dtype}[{', '.join(map(str, block.shape))}]",
                "made_in": block.phase,
                "frame": block.frame,
            }
            for rank, block in enumerate(alive_at(recorder, moment)[:LARGEST], start=1)
        ]
        # A custom model has no closed form.
        predicted = (
            {} if given else predicted_memory(SIZES[size], context, batch, dtype, phase, device)
        )
        rows += _breakdown(level, predicted)
        if not given:
            rows.append(_residual_stream(problem, SIZES[size].d_model, context, batch))
        if phase == "train_step":
            rows += _kept_by_a_block(problem, dtype)
        recorded = sum(level.values()) / _MIB
        return [{**row, "recorded_mib": recorded, "peak_mib": peak / _MIB} for row in rows]


def _recorded(problem: Any, phase: str, dtype: str) -> Any:
    from lmperf.instruments.memory_over_time import record
    from lmperf.transformer.model import cross_entropy
    from lmperf.transformer.training import autocast

    inputs = [problem.tokens, problem.targets]
    if phase == "forward":
        parts = [("inference", lambda: problem.inference(dtype))]
        return record(problem.model, None, inputs, parts)
    held: dict[str, Any] = {}

    def forward() -> None:
        with autocast(dtype, problem.tokens.device):
            held["loss"] = cross_entropy(problem.model(problem.tokens), problem.targets)

    parts = [
        ("forward", forward),
        ("backward", lambda: held.pop("loss").backward()),
        ("optimizer", problem.optimizer.step),
    ]
    return record(problem.model, problem.optimizer, inputs, parts)


def _kept_by_a_block(problem: Any, dtype: str) -> list[dict[str, Any]]:
    """Rows with what the first block of the model keeps for the backward pass, largest first."""
    from lmperf.instruments.memory_over_time import kept_for_backward
    from lmperf.transformer.model import blocks_of
    from lmperf.transformer.training import autocast

    blocks = blocks_of(problem.model)
    if blocks is None:
        return []
    with autocast(dtype, problem.tokens.device):
        kept = kept_for_backward(blocks[0], lambda: problem.model(problem.tokens))
    return [
        {"table": "kept", "position": rank, "size_mib": size / _MIB, "tensor": name}
        for rank, (name, size) in enumerate(kept, start=1)
    ]


def _in_mib(level: dict[str, int]) -> dict[str, float]:
    return {f"{category}_mib": size / _MIB for category, size in level.items()}


def _breakdown(level: dict[str, int], predicted: dict[str, int]) -> list[dict[str, Any]]:
    """Rows with measured and predicted MiB of each category of tensors at the peak."""
    # Count weights cast by autocast as activations: they also live from forward to backward.
    named = dict(predicted)
    named["activations"] = named.get("activations", 0) + named.pop("weight_copies", 0)
    return [
        {
            "table": "category",
            "position": number,
            "name": category,
            "size_mib": size / _MIB,
            "predicted_mib": named.get(category, 0) / _MIB if predicted else None,
        }
        for number, (category, size) in enumerate(level.items(), start=1)
    ]


def _residual_stream(problem: Any, d_model: int, context: int, batch: int) -> dict[str, Any]:
    """A row with MiB of one residual-stream tensor: measured, and predicted for float32."""
    stream = problem.model.embedding(problem.tokens)
    return {
        "table": "stream",
        "position": 1,
        "name": "residual stream",
        "tensor": f"float32[{batch}, {context}, {d_model}]",
        "size_mib": stream.untyped_storage().nbytes() / _MIB,
        "predicted_mib": 4 * batch * context * d_model / _MIB,
    }
