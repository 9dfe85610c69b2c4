"""The benchmark of Transformer language models: forward, backward, both, and a training step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lmperf.axes import model_axes
from lmperf.benchmark import (
    Case,
    Implementation,
    Phase,
    Timed,
    Trial,
    Value,
    Workload,
    grid,
    numbers,
    texts,
)
from lmperf.dtypes import STEP_DTYPES, dtype_of
from lmperf.gate import Gate
from lmperf.own.kinds import MODEL
from lmperf.own.signatures import is_step
from lmperf.transformer.rungs import FLOAT8, FLOAT8_GRAPH, IN_FLOAT8, NEEDED, RUNGS, STEPS_ALONE
from lmperf.transformer.sizes import SIZES, SWEPT

if TYPE_CHECKING:
    from lmperf.transformer.model_problem import ModelProblem
    from lmperf.transformer.steps import StepMaker

# Plain, SDPA and Triton attention, each in an eager, a compiled and a block-compiled model.
_WAYS = (
    *("eager", "compiled", "compiled_blocks"),
    *("sdpa", "sdpa_compiled", "sdpa_compiled_blocks"),
    *("triton", "triton_compiled", "triton_compiled_blocks"),
)
_ATTENTIONS = tuple(name for name in _WAYS if name.startswith(("sdpa", "triton")))
_NEEDED = [rung.implementation for rung in NEEDED]  # each has a model of its own
_COPYING = ("graph", "sdpa_copies_graph")  # share a model, under autocast
# The implementations in `STEPS_ALONE`.
_STEPS = (
    Implementation("fused_loss", "lmperf.transformer.steps:FUSED_LOSS", compiles=True),
    Implementation("fused_blocks", "lmperf.transformer.steps:FUSED_BLOCKS", compiles=True),
    *(
        Implementation(
            name, f"lmperf.transformer.steps:{name.upper()}", compiles=True, needs_cuda=True
        )
        for name in (
            *("sdpa_graph", "fused_graph", "sdpa_copies_graph", "graph"),
            *_NEEDED,
        )
    ),
    Implementation(
        FLOAT8_GRAPH.implementation,
        "lmperf.transformer.steps:FP8_GRAPH",
        tolerance=FLOAT8_GRAPH.implementation,
        compiles=True,
        needs_cuda=True,
    ),
)
# The sizes whose ladder has every rung in the preset `gpu`, and the largest size.
_SHOWN, _LARGEST = ["0.13B", "0.97B"], "3.4B"
# The largest batches that fit into 80 GiB without stored scores.
_LARGER = {"0.13B": 64, "0.42B": 32, "0.97B": 16, "2.0B": 8, "3.4B": 8}
_BF16 = "autocast_bfloat16"
_RUNG_NAMES = [rung.name for rung in RUNGS]
_GRAPHS = ["fused_graph", "graph", "bf16_graph"]
# Of larger batches: ours beside SDPA.
_BOTH = ["sdpa_copies_graph", "graph", "sdpa_compiled_blocks", "sdpa_graph"]
_FEW = ["float32", "autocast", "fused_blocks", *_GRAPHS]
_ON_CPU = ["float32", "autocast", "compiled_blocks", "fused_loss", "bf16_weights"]


def _cells(
    sizes: list, contexts: list, dtypes: list, implementations: list, batch: int = 4
) -> dict[str, list]:
    return grid(
        size=sizes,
        context_length=contexts,
        batch=batch,
        dtype=dtypes,
        implementation=implementations,
    )


def _ladder(size: str, context: int, batch: int, names: list[str]) -> list[dict[str, list]]:
    """The cells of some rungs of the ladder, a grid for each rung."""
    return [
        _cells([size], [context], [rung.dtype], [rung.implementation], batch)
        for rung in RUNGS
        if rung.name in names
    ]


# The cells with all phases; further cells have the train step alone, with the times of its parts.
_WHOLE = {
    "cpu": [
        _cells(["tiny"], [128], ["float32", _BF16], ["eager"]),
    ],
    "gpu": [
        _cells([*_SHOWN, _LARGEST], [256], [_BF16], ["eager"]),
        _cells(_SHOWN, [256], [_BF16], ["compiled_blocks"]),
        _cells(_SHOWN, [256], ["float32"], ["eager", "compiled_blocks"]),
        # Profiles are compared with these and with those of context 512.
        _cells(["0.97B"], [1024], [_BF16], ["eager", "compiled_blocks"]),
    ],
    "full": [
        _cells([*_SHOWN, _LARGEST], [512], [_BF16], ["eager"]),
        _cells(_SHOWN, [512], ["float32"], ["eager"]),
        _cells(SWEPT, [256], [_BF16, "float32"], ["eager"]),
        # Compiling a whole deep model takes a minute or more, and hardly pays.
        _cells(["0.13B", "0.42B"], [256], [_BF16], ["compiled_blocks", "compiled"]),
        _cells(["0.13B"], [256], ["float32"], ["compiled"]),
        _cells(["0.13B"], [256], ["tf32"], ["eager", "compiled"]),
    ],
}
# The cells with the train step alone.
_STEP_GRIDS = {
    "cpu": [
        *_ladder("tiny", 256, 4, _ON_CPU),
        # A CPU without instructions for bf16 measures no other compiled step.
        _cells(["tiny"], [256], ["float32"], ["compiled_blocks"]),
        # The smallest model of the courses: batch 4 would take a minute.
        _cells(["0.13B"], [128], ["float32"], ["eager"], batch=1),
    ],
    "gpu": [
        # First, so that the cases of a group that share a model follow each other.
        _cells(SWEPT, [1024], [_BF16], ["sdpa_copies_graph"]),
        # Other attentions in the model, at the context where attention costs most.
        _cells(SWEPT, [1024], [_BF16], ["eager", "sdpa_compiled_blocks", "sdpa_graph"]),
        _cells(["0.97B"], [1024], [_BF16], ["sdpa", "triton"]),
        *(grid for size in _SHOWN for grid in _ladder(size, 1024, 4, _RUNG_NAMES)),
        *_ladder(_LARGEST, 1024, 4, _FEW),
        *(grid for size in SWEPT for grid in _ladder(size, 1024, 4, _GRAPHS)),
        # Beside bf16 weights in a graph, with the same optimizer.
        _cells(SWEPT, [1024], ["bfloat16"], ["sdpa_graph"]),
        *(
            _cells([size], [1024], ["bfloat16"], ["sdpa_graph"], _LARGER[size])
            for size in (*_SHOWN, _LARGEST)
        ),
        *(_cells([size], [1024], [_BF16], ["graph"], batch) for size, batch in _LARGER.items()),
        *(_cells([size], [1024], [_BF16], _BOTH, _LARGER[size]) for size in (*_SHOWN, _LARGEST)),
        # What training needs beyond the recommended step, beside it.
        _cells([*_SHOWN, _LARGEST], [1024], [_BF16], ["clipped_graph"]),
        *(
            _cells([size], [1024], [_BF16], ["accumulated_graph"], _LARGER[size])
            for size in (*_SHOWN, _LARGEST)
        ),
        *(
            _cells([size], [1024], [FLOAT8_GRAPH.dtype], ["fp8_graph"], _LARGER[size])
            for size in ("0.97B", _LARGEST)
        ),
        *(
            grid
            for size in (*_SHOWN, _LARGEST)
            for grid in _ladder(size, 1024, _LARGER[size], ["bf16_graph"])
        ),
    ],
    "full": [
        _cells([*_SHOWN, _LARGEST], [128], [_BF16], ["eager"]),
        _cells(_SHOWN, [128], ["float32"], ["eager"]),
        *(grid for size in SWEPT for grid in _ladder(size, 1024, 4, _RUNG_NAMES)),
        *(
            grid
            for size, batch in _LARGER.items()
            for grid in _ladder(size, 1024, batch, ["bf16_graph"])
        ),
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


# The steps of the first table that are measured first, (dtype, implementation). In the preset
# `quick`, those that say what each part of ours gains follow them, where no step waits for the CPU.
_FIRST = ((_BF16, "sdpa_graph"), (_BF16, "graph"), ("bfloat16", "graph"))
_PARTS = ((_BF16, "fused_graph"), (_BF16, "sdpa_copies_graph"))
# Three models with their gradients and moments of at most so many parameters fit into 80 GiB.
_SIDE_BY_SIDE = 1e9
_STEP_CELLS = _points(_STEP_GRIDS) - _points(_WHOLE)


def _model(case: Case) -> tuple[bool, str, bool]:
    """Which model of its cell a case has; sorts float32 weights before bf16 weights."""
    name = case.implementation
    is_bf16 = dtype_of(case.axes["dtype"]).storage != "float32"
    has_own = name in (*_NEEDED, FLOAT8_GRAPH.implementation)
    return is_bf16, name if has_own else "", not is_bf16 and name in _COPYING


def _is_first(case: Case) -> bool:
    """Whether a case is a step of the first table, at the context and batch of all sizes."""
    axes = case.axes
    at_all = (axes["context_length"], axes["batch"]) == (1024, 4)
    return at_all and (axes["dtype"], case.implementation) in _FIRST


class EndToEnd(Timed):
    title = "End to end"
    order = 10
    columns = (
        *numbers("parameters", "tokens", "error_logits", "error_loss", "error_gradient"),
        *numbers("error_gain", "error_update", "pool_mib"),
        *texts("compiled"),
    )
    axes = model_axes(STEP_DTYPES)
    together = ("dtype",)
    takes = MODEL
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
    grids = {preset: [*_STEP_GRIDS[preset], *_WHOLE[preset]] for preset in _WHOLE}
    head = {
        "cpu": [{"size": ["tiny"], "context_length": [256]}],
        "gpu": [
            {
                **{"size": sizes, "context_length": [1024], "batch": [4]},
                **{"dtype": [dtype], "implementation": [name]},
            }
            for sizes, steps in ((_SHOWN, _FIRST), (["0.97B"], _PARTS))
            for dtype, name in steps
        ],
    }
    trials = {
        "cpu": Trial(("sdpa",), ("train_step",)),
        "gpu": Trial(
            ("sdpa_graph",), ("train_step",), least={"size": "tiny", "context_length": 128}
        ),
    }

    # The graphs of all sizes, and SDPA's with bf16 copies; SDPA, compiled, where it waits for the
    # CPU and where it does not.
    repeated = {
        "cpu": [{"size": ["tiny"], "context_length": [256], "dtype": ["float32", _BF16]}],
        "gpu": [
            {
                **{"context_length": [1024], "batch": [4], "dtype": [_BF16, "bfloat16"]},
                "implementation": ["graph"],
            },
            {
                **{"context_length": [1024], "batch": [4], "dtype": [_BF16]},
                "implementation": ["sdpa_copies_graph"],
            },
            {
                **{"size": ["0.13B", _LARGEST], "context_length": [1024], "batch": [4]},
                "implementation": ["sdpa_compiled_blocks"],
            },
        ],
    }

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> bool:
        """Float8 matmuls are timed with bf16 weights, which need a step of the ladder."""
        if dtype_of(axes["dtype"]).storage == "float32":
            return implementation in {rung.implementation for rung in IN_FLOAT8}
        return implementation not in STEPS_ALONE

    @classmethod
    def known_tolerances(cls) -> tuple[str, ...]:
        return (*super().known_tolerances(), FLOAT8.implementation)

    def phases_of(self, case: Case) -> tuple[str, ...]:
        """All phases, or the train step alone: of some cells, and of other attentions."""
        alone = STEPS_ALONE.union(_ATTENTIONS)
        if case.implementation in alone or case.cell in _STEP_CELLS:
            return tuple(phase for phase in self.phases if phase == "train_step")
        return self.phases

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """Steps of the first table are a group of their own, so that a quick run has them alone.

        So are the cases of each model of a large size, two of which would not fit into memory.
        Cases that share a model follow each other: `prepare` frees the reference of one model when
        it makes the next.
        """
        found = []
        for group in super().groups(cases):
            group.sort(key=_model)
            first = [case for case in group if _is_first(case)]
            rest = [case for case in group if case not in first]
            if SIZES[group[0].axes["size"]].parameters() > _SIDE_BY_SIDE:
                parts = [[case] for case in first]
                parts += [list(cases) for _, cases in itertools.groupby(rest, _model)]
            else:
                parts = [first, rest]
            found += filter(None, parts)
        return found

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.own.model import compiled_words, runnable
        from lmperf.own.optimizer import plugged
        from lmperf.precision import precision
        from lmperf.transformer.model import twin_of
        from lmperf.transformer.model_problem import ModelProblem
        from lmperf.transformer.steps import StepMaker, step_maker

        implementation = self.require(case, device)
        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in EndToEnd.axes)
        if implementation.compiles:
            require_compiler(device)
        given, build = plugged(implementation, self.callable_of(implementation.name))
        prepare = step_maker(given).prepare(dtype)
        if prepare not in shared:  # each custom model has its own worker
            for other in shared.values():  # two models and their references do not fit into memory
                other.forget_reference()
            cell = size, context, batch, device, seed, build, prepare
            shared[prepare] = ModelProblem(*cell, axes.get("vocabulary"))
        problem: ModelProblem = shared[prepare]
        columns = {"parameters": problem.parameters, "tokens": batch * context}
        if isinstance(given, StepMaker):
            tolerance = implementation.tolerance
            phases, gate = _made_step(given, problem, dtype, tolerance, seed, columns)
        elif is_step(given):
            run = partial(problem.custom_step, given, twin_of(problem.model), dtype)
            phases, gate = (
                {"train_step": problem.step_phase(run)},
                lambda _: problem.gate_run(run, dtype),
            )
        else:
            model = runnable(given, problem.model, implementation.to_compile)
            if implementation.to_compile:
                columns["compiled"] = compiled_words(problem.model)
            phases, gate = problem.phases(model, dtype), partial(problem.gate, model, dtype)
        return Workload(
            phases,
            gate=gate,
            expect=partial(problem.expect, dtype, implementation.tolerance),
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

    return {"train_step": problem.step_phase(step, has_parts=not maker.capture)}, gate
