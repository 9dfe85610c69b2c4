"""The benchmark of Transformer language models: forward, backward, both, and a training step."""

from __future__ import annotations

from functools import partial

from lmperf.axes import SIZE, dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Timed, Workload, numbers
from lmperf.dtypes import MODEL_DTYPES

# Plain, SDPA and Triton attention, each in an eager, a compiled and a block-compiled model.
_WAYS = (
    *("eager", "compiled", "compiled_blocks"),
    *("sdpa", "sdpa_compiled", "sdpa_compiled_blocks"),
    *("triton", "triton_compiled", "triton_compiled_blocks"),
)
_SIZES = ["0.13B", "0.42B", "0.97B", "2.0B", "3.4B"]
_BF16 = "autocast_bfloat16"


def _cells(sizes: list, contexts: list, dtypes: list, implementations: list) -> dict[str, list]:
    return {
        "size": sizes,
        "context_length": contexts,
        "batch": [4],
        "dtype": dtypes,
        "implementation": implementations,
    }


class EndToEnd(Timed):
    title = "End to end"
    order = 10
    columns = numbers(
        *("parameters", "tokens", "error_logits", "error_loss", "error_gradient", "error_gain")
    )
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
        dtype_axis(MODEL_DTYPES),
    )
    together = ("dtype",)
    takes = "model"
    phases = ("forward", "backward", "forward_backward", "train_step")
    clock = "step"
    limit_s = 600.0
    implementations = tuple(
        Implementation(
            name,
            f"lmperf.transformer.implementations:{name}",
            compiles="compiled" in name or name == "triton",
            needs_cuda=name.startswith("triton"),
        )
        for name in _WAYS
    )
    grids = {
        "cpu": [
            {
                "size": ["tiny"],
                "context_length": [128, 256],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["eager"],
            },
            {
                "size": ["tiny"],
                "context_length": [128],
                "batch": [4],
                "dtype": ["float32"],
                "implementation": ["compiled"],
            },
        ],
        "gpu": [
            _cells(_SIZES, [128, 256, 512, 1024], [_BF16], ["eager"]),
            _cells(_SIZES, [256, 1024], [_BF16], ["compiled_blocks"]),
            # A float32 step of the larger sizes takes seconds, so they have fewer cells.
            _cells(["0.13B", "0.42B", "0.97B"], [128, 256, 512, 1024], ["float32"], ["eager"]),
            _cells(["2.0B", "3.4B"], [256, 512], ["float32"], ["eager"]),
            _cells(_SIZES, [256], ["float32"], ["compiled_blocks"]),
            # Other attentions in the model, at the context where attention costs most.
            _cells(
                _SIZES,
                [1024],
                [_BF16],
                ["sdpa", "sdpa_compiled_blocks", "triton", "triton_compiled_blocks"],
            ),
            _cells(_SIZES, [256], ["tf32"], ["eager"]),
            # Compiling a whole deep model takes a minute or more.
            _cells(_SIZES, [256], [_BF16], ["compiled"]),
            _cells(["0.13B"], [256], ["float32", "tf32"], ["compiled"]),
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.precision import precision
        from lmperf.transformer.custom import is_step, runnable
        from lmperf.transformer.model import twin_of
        from lmperf.transformer.problem import ModelProblem

        implementation = self.require(case, device)
        size, context, batch, dtype = (case.axes[axis.name] for axis in self.axes)
        if implementation.compiles:
            require_compiler(device)
        given = self.callable_of(implementation.name)
        if "problem" not in shared:  # each custom model has its own worker
            shared["problem"] = ModelProblem(size, context, batch, device, seed, given)
        problem: ModelProblem = shared["problem"]
        if is_step(given):
            model = twin_of(problem.model)
            phases = problem.step_phases(given, model, dtype)
            gate = partial(problem.gate_step, given, model, dtype)
        else:
            model = runnable(given, problem.model)
            phases, gate = problem.phases(model, dtype), partial(problem.gate, model, dtype)
        return Workload(
            phases,
            gate=gate,
            freshen=problem.freshen,
            check=partial(problem.check, dtype),
            resident=problem.resident,
            compiles=implementation.compiles,
            context=partial(precision, dtype),
            columns={"parameters": problem.parameters, "tokens": batch * context},
        )
