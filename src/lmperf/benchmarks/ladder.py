"""The ladder: a training step, a technique more with every rung, each gated against float64."""

from __future__ import annotations

from functools import partial

from lmperf.benchmark import Axis, Case, Timed, Unsupported, Workload, numbers
from lmperf.gate import Gate
from lmperf.names import RUNGS, SIZES

# With these many sequences the scores of plain attention have no room beside the rungs above.
_TOP = list(RUNGS)[4:]


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
        Axis("size", str, SIZES),
        Axis("context_length", int),
        Axis("batch", int),
    )
    phases = ("train_step",)
    clock = "step"
    limit_s = 600.0
    compiles = tuple(RUNGS)[3:]
    needs_cuda = ("flash_attention", "graph")
    grids = {
        "cpu": [
            _cells(
                ["tiny"],
                128,
                4,
                ["float32", "autocast", "compiled_blocks", "fused_loss", "bf16_weights"],
            )
        ],
        "gpu": [
            _cells(["small", "large", "2.7B"], 1024, 4, list(RUNGS)),
            _cells(["small"], 1024, 64, _TOP),
            _cells(["large"], 1024, 16, _TOP),
            _cells(["2.7B"], 1024, 8, _TOP),
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.precision import precision
        from lmperf.transformer.graphed import Graphed
        from lmperf.transformer.ladder import rung
        from lmperf.transformer.model import twin_of
        from lmperf.transformer.problem import ModelProblem

        name, how = case.implementation, rung(case.implementation)
        size, context, batch = (case.axes[axis.name] for axis in self.axes)
        if name in self.needs_cuda and device != "cuda":
            raise Unsupported("needs a CUDA device")
        if name in self.compiles:
            require_compiler(device)
        if how.weights not in shared:
            for other in shared.values():  # two models with their references have no room
                other.forget_reference()
            shared[how.weights] = ModelProblem(
                size, context, batch, device, seed, prepare=how.prepare
            )
        problem: ModelProblem = shared[how.weights]
        # The gate has the tokens of the seed: what a first call has captured are others.
        problem.freshen(seed + 1)
        model = twin_of(problem.model)
        step = how.step(model, problem.optimizer, problem.tokens, problem.targets)
        columns = {"parameters": problem.parameters, "tokens": batch * context}

        def gate(_: list[str]) -> Gate:
            found = problem.gate_run(step, how.dtype)
            if isinstance(step, Graphed):
                columns["pool_mib"] = step.pool_mib
                problem.forget_reference()  # whose room the timed steps of the others need
            return found

        return Workload(
            {"train_step": problem.step_phase(step)},
            gate=gate,
            freshen=problem.freshen,
            check=partial(problem.check, how.dtype),
            resident=problem.resident,
            compiles=name in self.compiles,
            context=partial(precision, how.dtype),
            columns=columns,
        )
