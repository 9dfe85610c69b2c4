"""The benchmark "ladder": training steps (rungs) that each add a technique to the rung before."""

from __future__ import annotations

from functools import partial

from lmperf.axes import SIZE
from lmperf.benchmark import Axis, Case, Implementation, Timed, Workload, numbers
from lmperf.gate import Gate

_AUTOCAST = "autocast_bfloat16"


def _rung(
    name: str, way: str, dtype: str, weights: str = "float32", graph: bool = False, **runs: bool
) -> Implementation:
    """Declare a rung of the ladder as an implementation.

    way: name of a function of `lmperf.transformer.ladder`, which gets dtype, weights and graph as
    options. runs: `compiles` and `needs_cuda` of the implementation.
    """
    options = {"dtype": dtype, "weights": weights, "graph": graph}
    return Implementation(name, f"lmperf.transformer.ladder:{way}", options, **runs)


# The lowest rung first.
RUNGS = (
    _rung("float32", "plain", "float32"),
    _rung("tf32", "plain", "tf32"),
    _rung("autocast", "plain", _AUTOCAST),
    _rung("compiled_blocks", "by_block", _AUTOCAST, compiles=True),
    _rung("flash_attention", "flash_by_block", _AUTOCAST, compiles=True, needs_cuda=True),
    _rung("fused_loss", "chunked_loss", _AUTOCAST, compiles=True),
    _rung("bf16_weights", "chunked_loss", "bfloat16", "bfloat16", compiles=True),
    _rung("graph", "chunked_loss", "bfloat16", "bfloat16", True, compiles=True, needs_cuda=True),
)
_NAMES = [rung.name for rung in RUNGS]
_ON_CPU = [rung.name for rung in RUNGS if not rung.needs_cuda and rung.options["dtype"] != "tf32"]
# The rungs from flash attention on. Lower rungs store the scores of plain attention, so larger
# batches do not fit into memory.
_WITHOUT_SCORES = _NAMES[_NAMES.index("flash_attention") :]


def _cells(sizes: list, context: int, batch: int, rungs: list) -> dict[str, list]:
    return {
        "size": sizes,
        "context_length": [context],
        "batch": [batch],
        "implementation": rungs,
    }


class Ladder(Timed):
    title = "The ladder"
    section = "end_to_end"
    columns = numbers(
        *("parameters", "tokens", "error_loss", "error_gradient", "error_gain", "pool_mib")
    )
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
    )
    phases = ("train_step",)
    clock = "step"
    limit_s = 600.0
    implementations = RUNGS
    grids = {
        "cpu": [_cells(["tiny"], 128, 4, _ON_CPU)],
        "gpu": [
            _cells(["0.13B", "0.97B", "3.4B"], 1024, 4, _NAMES),
            _cells(["0.13B"], 1024, 64, _WITHOUT_SCORES),
            _cells(["0.97B"], 1024, 16, _WITHOUT_SCORES),
            _cells(["3.4B"], 1024, 8, _WITHOUT_SCORES),
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.precision import precision
        from lmperf.transformer.graphed import Graphed
        from lmperf.transformer.model import twin_of
        from lmperf.transformer.problem import ModelProblem

        implementation = self.require(case, device)
        rung = self.callable_of(implementation.name)()
        size, context, batch = (case.axes[axis.name] for axis in self.axes)
        if implementation.compiles:
            require_compiler(device)
        if rung.weights not in shared:
            for other in shared.values():  # two models and their references do not fit into memory
                other.forget_reference()
            shared[rung.weights] = ModelProblem(
                size, context, batch, device, seed, prepare=rung.prepare
            )
        problem: ModelProblem = shared[rung.weights]
        # Capture with other tokens than the gate uses: a CUDA graph that keeps them fails the gate.
        problem.freshen(seed + 1)
        model = twin_of(problem.model)
        step = rung.step(model, problem.optimizer, problem.tokens, problem.targets)
        columns = {"parameters": problem.parameters, "tokens": batch * context}

        def gate(_: list[str]) -> Gate:
            found = problem.gate_run(step, rung.dtype)
            if isinstance(step, Graphed):
                columns["pool_mib"] = step.pool_mib
                problem.forget_reference()  # the timed steps of other rungs need its memory
            return found

        return Workload(
            {"train_step": problem.step_phase(step)},
            gate=gate,
            freshen=problem.freshen,
            check=partial(problem.check, rung.dtype),
            resident=problem.resident,
            compiles=implementation.compiles,
            context=partial(precision, rung.dtype),
            columns=columns,
        )
