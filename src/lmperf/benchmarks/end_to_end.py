"""The benchmark of Transformer language models: forward, backward, both, and a training step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lmperf.axes import SIZE, dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Phase, Timed, Value, Workload, numbers
from lmperf.dtypes import STEP_DTYPES, dtype_of
from lmperf.gate import Gate
from lmperf.transformer.rungs import RUNGS, STEPS_ALONE

if TYPE_CHECKING:
    from lmperf.transformer.problem import ModelProblem
    from lmperf.transformer.steps import StepMaker

# Plain, SDPA and Triton attention, each in an eager, a compiled and a block-compiled model.
_WAYS = (
    *("eager", "compiled", "compiled_blocks"),
    *("sdpa", "sdpa_compiled", "sdpa_compiled_blocks"),
    *("triton", "triton_compiled", "triton_compiled_blocks"),
)
# Ways at the ladder's context that are neither rungs nor in a table of the write-up.
_BURST_ONLY = ("sdpa", "triton")
_ATTENTIONS = tuple(name for name in _WAYS if name.startswith(("sdpa", "triton")))
# The implementations in `STEPS_ALONE`.
_STEPS = (
    Implementation("fused_loss", "lmperf.transformer.steps:FUSED_LOSS", compiles=True),
    Implementation("fused_blocks", "lmperf.transformer.steps:FUSED_BLOCKS", compiles=True),
    Implementation("graph", "lmperf.transformer.steps:GRAPH", compiles=True, needs_cuda=True),
)
# Peers with float8 matmuls (`rungs.FLOAT8`), each with a tolerance of its own.
_FLOAT8 = ("fp8_tensorwise", "fp8_rowwise")
_SIZES = ["0.13B", "0.42B", "0.97B", "2.0B", "3.4B"]
_BF16 = "autocast_bfloat16"
_RUNG_NAMES = [rung.name for rung in RUNGS]
# The rungs from flash attention on. Lower rungs store the scores of plain attention, so larger
# batches do not fit into memory.
_WITHOUT_SCORES = _RUNG_NAMES[_RUNG_NAMES.index("flash_attention") :]
_ON_CPU = ["float32", "autocast", "compiled_blocks", "fused_loss", "bf16_weights"]


def _cells(
    sizes: list, contexts: list, dtypes: list, implementations: list, batch: int = 4
) -> dict[str, list]:
    return {
        "size": sizes,
        "context_length": contexts,
        "batch": [batch],
        "dtype": dtypes,
        "implementation": implementations,
    }


def _ladder(size: str, context: int, batch: int, names: list[str]) -> list[dict[str, list]]:
    """The cells of some rungs of the ladder, a grid for each rung.

    Rungs with float32 weights stand before those with bf16 weights: `prepare` frees the reference
    of one model when it makes the other.
    """
    return [
        _cells([size], [context], [rung.dtype], [rung.implementation], batch)
        for rung in RUNGS
        if rung.name in names
    ]


# The cells with all phases, but for other attentions; further cells have the train step alone.
_WHOLE = {
    "cpu": [
        _cells(["tiny"], [128, 256], ["float32", _BF16], ["eager"]),
        _cells(["tiny"], [256], ["float32"], ["compiled"]),
    ],
    "gpu": [
        _cells(_SIZES, [128, 256, 512, 1024], [_BF16], ["eager"]),
        _cells(_SIZES, [256, 1024], [_BF16], ["compiled_blocks"]),
        # A float32 step of the larger sizes takes seconds, so they have fewer cells; the ladder
        # has those of the longest context.
        _cells(["0.13B", "0.42B", "0.97B"], [128, 256, 512], ["float32"], ["eager"]),
        _cells(["2.0B", "3.4B"], [256], ["float32"], ["eager"]),
        _cells(_SIZES, [256], ["float32"], ["compiled_blocks"]),
        # Other attentions in the model, at the context where attention costs most.
        _cells(
            _SIZES,
            [1024],
            [_BF16],
            ["sdpa", "sdpa_compiled_blocks", "triton", "triton_compiled_blocks"],
        ),
        _cells(_SIZES, [256], ["tf32"], ["eager"]),
        # Compiling a whole deep model takes a minute or more, and hardly pays.
        _cells(["0.13B", "0.42B", "0.97B"], [256], [_BF16], ["compiled"]),
        _cells(["0.13B"], [256], ["float32", "tf32"], ["compiled"]),
    ],
}
# The cells with the train step alone.
_STEP_GRIDS = {
    "cpu": [
        *_ladder("tiny", 128, 4, _ON_CPU),
        # The smallest model of the courses: batch 4 would take a minute.
        _cells(["0.13B"], [128], ["float32", _BF16], ["eager"], batch=1),
    ],
    "gpu": [
        *(grid for size in _SIZES for grid in _ladder(size, 1024, 4, _RUNG_NAMES)),
        *_ladder("0.13B", 1024, 64, _WITHOUT_SCORES),
        *_ladder("0.97B", 1024, 16, _WITHOUT_SCORES),
        *_ladder("3.4B", 1024, 8, _WITHOUT_SCORES),
    ],
}


def _points(grids: Mapping[str, list[dict[str, list]]]) -> set[tuple]:
    """The cells of all presets' grids, as in `Case.cell`."""
    axes = ("size", "context_length", "batch", "dtype")
    return {
        tuple(zip(axes, values, strict=True))
        for grid in itertools.chain.from_iterable(grids.values())
        for values in itertools.product(*(grid[axis] for axis in axes))
    }


# The ends of the ladder, (dtype, implementation): the lowest rung that uses tensor cores, and the
# highest rungs with float32 and with any weights. They give the first table of a write-up.
_ENDS = (("tf32", "eager"), (_BF16, "fused_blocks"), ("bfloat16", "graph"))
_STEP_CELLS = _points(_STEP_GRIDS) - _points(_WHOLE)


def _is_end(case: Case) -> bool:
    """Whether a case is an end of the ladder at the context and batch of all sizes."""
    axes = case.axes
    at_all = (axes["context_length"], axes["batch"]) == (1024, 4)
    return at_all and (axes["dtype"], case.implementation) in _ENDS


class EndToEnd(Timed):
    title = "End to end"
    order = 10
    columns = numbers(
        *("parameters", "tokens", "error_logits", "error_loss", "error_gradient", "error_gain"),
        "pool_mib",
    )
    axes = (
        SIZE,
        Axis("context_length", int, length=True),
        Axis("batch", int),
        dtype_axis(STEP_DTYPES),
    )
    together = ("dtype",)
    takes = "model"
    phases = ("forward", "backward", "forward_backward", "train_step")
    clock = "step"
    limit_s = 600.0
    implementations = (
        *(
            Implementation(
                name,
                f"lmperf.transformer.implementations:{name}",
                compiles="compiled" in name or name == "triton",
                needs_cuda=name.startswith("triton"),
            )
            for name in _WAYS
        ),
        *_STEPS,
    )
    grids = {preset: [*_WHOLE[preset], *_STEP_GRIDS[preset]] for preset in _WHOLE}
    head = {
        "cpu": [{"context_length": [128]}],
        "gpu": [
            {
                **{"size": ["0.13B", "0.97B", "3.4B"], "context_length": [1024], "batch": [4]},
                **{"dtype": [dtype], "implementation": [name]},
            }
            for dtype, name in _ENDS
        ],
    }

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> str | None:
        float32 = dtype_of(axes["dtype"]).storage == "float32"
        if float32 and implementation in _FLOAT8:
            return "float8 matmuls are timed with bf16 weights"
        if float32 or implementation in STEPS_ALONE:
            return None
        return f"bf16 weights need one of {', '.join(sorted(STEPS_ALONE))}"

    @classmethod
    def known_tolerances(cls) -> tuple[str, ...]:
        return (*super().known_tolerances(), *_FLOAT8)

    def phases_of(self, case: Case) -> tuple[str, ...]:
        """All phases, or the train step alone: of some cells, and of other attentions."""
        alone = STEPS_ALONE.union(_ATTENTIONS)
        if case.implementation in alone or case.cell in _STEP_CELLS:
            return tuple(phase for phase in self.phases if phase == "train_step")
        return self.phases

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """The ends of the ladder are a group of their own, so that a quick run can time them alone.

        They compare with the other rungs by their sustained times.
        """
        found = []
        for group in super().groups(cases):
            ends = [case for case in group if _is_end(case)]
            found += filter(None, (ends, [case for case in group if case not in ends]))
        return found

    def sustains(self, case: Case, phase: str) -> bool:
        """Whether it is a step of the ladder, or one beside it in a table of the write-up.

        A sustained time costs seven seconds or twenty steps, so other steps have none.
        """
        axes = case.axes
        at_context = axes["context_length"] == (128 if axes["size"] == "tiny" else 1024)
        return phase == "train_step" and at_context and case.implementation not in _BURST_ONLY

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.precision import precision
        from lmperf.transformer.custom import is_step, runnable
        from lmperf.transformer.model import twin_of
        from lmperf.transformer.problem import ModelProblem
        from lmperf.transformer.steps import StepMaker, step_maker

        implementation = self.require(case, device)
        size, context, batch, dtype = (case.axes[axis.name] for axis in self.axes)
        if implementation.compiles:
            require_compiler(device)
        given = self.callable_of(implementation.name)
        weights, prepare = dtype_of(dtype).storage, step_maker(given).prepare(dtype)
        if weights not in shared:  # each custom model has its own worker
            for other in shared.values():  # two models and their references do not fit into memory
                other.forget_reference()
            shared[weights] = ModelProblem(size, context, batch, device, seed, given, prepare)
        problem: ModelProblem = shared[weights]
        columns = {"parameters": problem.parameters, "tokens": batch * context}
        if isinstance(given, StepMaker):
            tolerance = implementation.tolerance
            phases, gate = _made_step(given, problem, dtype, tolerance, seed, columns)
        elif is_step(given):
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
            check=partial(problem.check, dtype, tolerance=implementation.tolerance),
            resident=problem.resident,
            compiles=implementation.compiles,
            context=partial(precision, dtype),
            columns=columns,
        )


def _made_step(
    maker: StepMaker,
    problem: ModelProblem,
    dtype: str,
    tolerance: str,
    seed: int,
    columns: dict[str, Any],
) -> tuple[dict[str, Phase], Callable[[list[str]], Gate]]:
    """The train step of a maker as the only phase, and its gate, which adds to `columns`."""
    from lmperf.transformer.model import twin_of

    # Capture with other tokens than the gate uses: a CUDA graph that keeps them fails the gate.
    problem.freshen(seed + 1)
    optimizer, tokens, targets = problem.optimizer, problem.tokens, problem.targets
    step = maker.step(twin_of(problem.model), optimizer, tokens, targets, dtype)

    def gate(_: list[str]) -> Gate:
        found = problem.gate_run(step, dtype, tolerance)
        if maker.capture:
            columns["pool_mib"] = step.pool_mib
            problem.forget_reference()  # the timed steps of other cases need its memory
        return found

    return {"train_step": problem.step_phase(step)}, gate
