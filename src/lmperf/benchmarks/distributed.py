"""The benchmark of train steps on several ranks, by strategy of data parallel training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lmperf.axes import SIZE, dtype_axis
from lmperf.benchmark import (
    STRICT,
    Axis,
    Case,
    Implementation,
    Phase,
    Rank,
    RankedTimed,
    Trial,
    Value,
    Workload,
    grid,
    numbers,
    texts,
)
from lmperf.distributed.rank_footprint import state_bytes
from lmperf.dtypes import MODEL_STORED_DTYPES
from lmperf.gate import Gate
from lmperf.own.kinds import STRATEGY
from lmperf.own.signatures import kind_of
from lmperf.transformer.sizes import ModelSize

_ENTRY = "lmperf.distributed.strategies"
# The courses' batch of all ranks. Eight ranks need twice as many sequences.
BATCH = 4
# A batch whose communication can be hidden on two GPUs.
LARGE_BATCH = 16
_BF16 = "autocast_bfloat16"
# Gathers norms in bf16 as well, and so rounds them: `lmperf.distributed.weight_bounds`.
ROUNDED_NORMS = "rounded_norms"
# Size -> sequences of a rank, with the recommended step: the larger batches of `end_to_end`.
SCALED = {"0.13B": 64, "0.97B": 16, "3.4B": 8}
SCALED_CONTEXT = 1024
# Size -> how many implementations share a group, whose models are side by side; of others one.
_SIDE_BY_SIDE = {"tiny": 32, "0.13B": 32, "0.97B": 2}
# Tokens of a rank whose activations fit beside those of another implementation.
_FEW_TOKENS = 8192
# Kind of a custom strategy -> the strategy of `distributed.rank_footprint` that stores the least.
_STORES = {"ddp": "overlapped", "sharded_optimizer": "sharded_optimizer", "fsdp": "fsdp2"}
_MIB = 2**20


def _strategy(
    name: str, function: str, tolerance: str = STRICT, blocks: Iterable[str] = (), **options: Any
) -> Iterable[Implementation]:
    """A strategy with eager blocks, and its variants."""
    entry = f"{_ENTRY}:{function}"
    yield Implementation(name, entry, options, tolerance)
    for how in blocks:
        variant, compiles = {**options, "blocks": how}, how == "compiled"
        yield Implementation(f"{name}_{how}", entry, variant, tolerance, compiles)


def _compiled(name: str, function: str, tolerance: str = STRICT, **options: Any) -> Implementation:
    """A strategy with compiled blocks, on GPUs alone: DDP averages in bf16 by NCCL only."""
    given, entry = {**options, "blocks": "compiled"}, f"{_ENTRY}:{function}"
    return Implementation(f"{name}_compiled", entry, given, tolerance, True, needs_cuda=True)


def _recommended(name: str, tolerance: str = STRICT, **options: Any) -> Implementation:
    """The step that the report recommends on one GPU, on one rank or several."""
    return Implementation(f"{name}_graph", f"{_ENTRY}:recommended", options, tolerance, True)


_IMPLEMENTATIONS = (
    _recommended("one_rank"),
    _recommended("overlapped"),
    _recommended("sharded_optimizer", sharded=True),
    *_strategy("one_rank", "one_rank", blocks=["compiled"]),
    *_strategy("one_by_one", "data_parallel", overlapped=False),
    *_strategy("flat", "data_parallel", blocks=["compiled"], bucket_mb=math.inf, overlapped=False),
    *_strategy("overlapped", "data_parallel", blocks=["compiled"]),
    *_strategy("bucket_1", "data_parallel", bucket_mb=1),
    *_strategy("bucket_10", "data_parallel", bucket_mb=10),
    *_strategy("bucket_100", "data_parallel", bucket_mb=100),
    *_strategy("bucket_1000", "data_parallel", bucket_mb=1000),
    *_strategy("ddp", "ddp", blocks=["compiled"]),
    *_strategy("sharded_optimizer", "sharded_optimizer"),
    *_strategy("zero_redundancy", "zero_redundancy"),
    *_strategy("fully_sharded", "fully_sharded", blocks=["compiled", "checkpointed"]),
    *_strategy("fsdp2", "fsdp2", ROUNDED_NORMS, blocks=["compiled", "checkpointed"]),
    _compiled("ddp_bf16", "ddp", compresses=True),
    _compiled("fsdp2_kept", "fsdp2", ROUNDED_NORMS, keeps=True),
)
_BUCKETS = ["bucket_1", "bucket_10", "bucket_100", "bucket_1000"]
_EAGER = [
    *("one_rank", "one_by_one", "flat", "overlapped", "ddp"),
    *_BUCKETS,
    *("sharded_optimizer", "zero_redundancy", "fully_sharded", "fsdp2"),
]
_CHECKPOINTED = ["fully_sharded_checkpointed", "fsdp2_checkpointed"]
_COMPILED = [
    *("one_rank_compiled", "flat_compiled", "overlapped_compiled", "ddp_compiled"),
    *("fully_sharded_compiled", "fsdp2_compiled"),
]
RECOMMENDED = ["one_rank_graph", "overlapped_graph", "sharded_optimizer_graph"]
# Peers that average gradients in bf16, as the recommended step does.
LIKE_RECOMMENDED = ["ddp_bf16_compiled", "fsdp2_kept_compiled"]
PEERS = ["one_rank_compiled", "ddp_compiled", "fsdp2_compiled", *LIKE_RECOMMENDED]
# Timed at `LARGE_BATCH`.
_LARGE = [
    *("one_rank_compiled", "overlapped_compiled", "ddp_compiled"),
    *("fully_sharded_compiled", "fsdp2_compiled"),
]
# The strategies of the first table, and a way to shard for each of ours and torch's.
FEW = ["one_rank", "ddp", "fully_sharded", "overlapped", "fsdp2"]


def cells(
    sizes: list[str],
    context: int,
    ranks: list[int],
    dtype: str,
    implementations: list[str],
    batch: int = BATCH,
) -> dict[str, list]:
    """A grid at one batch of all ranks; at `BATCH`, a single rank joins `ranks`."""
    return grid(
        size=sizes,
        context_length=context,
        batch=batch,
        ranks=[1, *ranks] if batch == BATCH else ranks,
        dtype=dtype,
        implementation=implementations,
    )


def scaled(size: str, implementations: list[str]) -> list[dict[str, list]]:
    """The cells of a size that show how steps scale: one rank, and up to eight.

    Several ranks have the batch of one rank (strong scaling), and as many times it (weak scaling).
    """
    return [
        grid(
            size=size,
            context_length=SCALED_CONTEXT,
            batch=times * SCALED[size],
            ranks=[1, 2, 4, 8] if times == 1 else times,
            dtype=_BF16,
            implementation=implementations,
        )
        for times in (1, 2, 4, 8)
    ]


def is_alone(implementation: str) -> bool:
    """Whether an implementation of the benchmark is the step of a single rank."""
    return implementation.startswith("one_rank")


def with_models(strategies: dict[str, Implementation]) -> dict[str, Implementation]:
    """Strategies by name, those of the project with the models of the first custom one."""
    own = [one.models for one in strategies.values() if one.origin == "custom" and one.models]
    if not own:
        return strategies
    return {
        name: replace(one, models=own[0]) if one.origin == "project" else one
        for name, one in strategies.items()
    }


class Distributed(RankedTimed):
    title = "Several GPUs"
    order = 75
    columns = (
        *numbers("parameters", "tokens", "error_parameters", "error_ranks", "pool_mib"),
        *texts("model"),
    )
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
        Axis("ranks", int, most=256),
        dtype_axis(MODEL_STORED_DTYPES),
    )
    takes = STRATEGY
    phases = ("train_step",)
    clock = "step"
    limit_s = 600.0
    implementations = _IMPLEMENTATIONS
    grids = {
        "cpu": [
            cells(["tiny"], 32, [2], "float32", FEW),
        ],
        "gpu": [
            cells(["3.4B"], 512, [2, 4], _BF16, [*_EAGER, *_CHECKPOINTED, *_COMPILED]),
            cells(["3.4B"], 512, [8], _BF16, _COMPILED, batch=2 * BATCH),
            cells(["3.4B"], 512, [1, 2, 4], _BF16, _LARGE, batch=LARGE_BATCH),
            # At batch 4, steps of this size waited for the CPU on two H100s.
            cells(["0.97B"], 512, [1, 2], _BF16, FEW, batch=LARGE_BATCH),
            *(one for size in SCALED for one in scaled(size, RECOMMENDED)),
            *scaled("3.4B", PEERS),
        ],
        "full": [
            *scaled("0.13B", PEERS),
            *scaled("0.97B", PEERS),
            cells(["0.97B"], 512, [2, 4], _BF16, _EAGER),
            cells(["2.0B"], 512, [2], _BF16, FEW),
            cells(["0.97B"], 512, [2], "float32", FEW),
        ],
    }
    head = {
        "gpu": [
            {
                **{"size": ["0.97B"], "context_length": [SCALED_CONTEXT]},
                **{"batch": [ranks * SCALED["0.97B"]], "ranks": [ranks]},
                "implementation": names,
            }
            for ranks, names in ((1, ["one_rank_graph"]), (2, ["overlapped_graph"]))
        ],
    }
    trials = {"gpu": Trial(least={"size": "0.13B", "context_length": 128})}
    # The first table.
    repeated = {
        "cpu": [{"size": ["tiny"]}],
        "gpu": [{"size": ["3.4B"], "implementation": [*RECOMMENDED, "ddp_bf16_compiled"]}],
    }

    @property
    def known(self) -> dict[str, Implementation]:
        """All strategies. Those of the project and of PyTorch train the model of the user's, so
        that equals stand beside equals."""
        return with_models(super().known)

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> bool:
        """A single rank has nobody to communicate with."""
        return is_alone(implementation) != (axes["ranks"] == 1)

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """Few implementations of a large size together; of the largest, and of batches of many
        tokens, each alone."""
        found = []
        for group in super().groups(cases):
            axes = group[0].axes
            tokens = axes["batch"] * axes["context_length"] / axes["ranks"]
            most = _SIDE_BY_SIDE.get(axes["size"], 1) if tokens <= _FEW_TOKENS else 1
            found += [group[i : i + most] for i in range(0, len(group), most)]
        return found

    def head_cases(self, preset: str, overrides: Mapping[str, list] | None = None) -> list[Case]:
        """The cases of the head, and a user's of the same cells, which are in the same groups.

        On a CPU all cases if there is a user's: a quick run measures what was brought.
        """
        if preset == "cpu" and any(one.origin == "custom" for one in self.external.values()):
            return self.cases(preset, overrides)
        found = super().head_cases(preset, overrides)
        shown = {case.cell for case in found}
        return [
            case
            for case in self.cases(preset, overrides)
            if case in found or (case.implementation in self.external and case.cell in shown)
        ]

    def prepare_rank(self, case: Case, rank: Rank, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.distributed.distributed_problem import DistributedProblem
        from lmperf.distributed.gating import Reference, Timed
        from lmperf.own.model import trained_by
        from lmperf.precision import precision
        from lmperf.transformer.counted_flops import forward_flops
        from lmperf.transformer.flops import FLOPS_PER_FORWARD, flops

        implementation = self.require(case, rank.device)
        if implementation.compiles:
            require_compiler(rank.device)
        size, context, batch, _, dtype = (case.axes[axis.name] for axis in self.axes)
        name, build_model = trained_by(implementation)
        if not shared:
            problem = DistributedProblem(size, context, batch, dtype, rank, seed, build_model)
            shared["problem"], shared["reference"] = problem, Reference(problem)
        problem = shared["problem"]
        build, blocks = self.build_of(case.implementation)
        of_ours = sum(self._state_of(case, problem.size).values())
        gate = shared["reference"].gate(build, blocks, implementation.tolerance)
        with precision(dtype):
            timed = Timed(problem, build)
        parameters = problem.size.parameters()
        work = flops(problem.size, context, batch, "train_step")
        if build_model:
            model = problem.setup().model
            parameters = sum(parameter.numel() for parameter in model.parameters())
            work = forward_flops(model, problem.tokens) * FLOPS_PER_FORWARD["train_step"]
        columns = {"parameters": parameters, "tokens": batch * context, "model": name or None}

        def checked(_: list[str]) -> Gate:
            if timed.training.captures and rank.device == "cuda":
                timed.run()  # captures the step
                columns["pool_mib"] = timed.training.graph.pool_mib
            return gate

        return Workload(
            {"train_step": Phase(lambda _: timed.run(), flops=work)},
            gate=checked,
            freshen=problem.freshen,
            check=lambda _, result: timed.check(result),
            resident=[*timed.tensors, timed.training.optimizer, problem.tokens, problem.targets],
            least_mib=of_ours * parameters / problem.size.parameters() / _MIB,
            compiles=implementation.compiles,
            context=partial(precision, dtype),
            columns=columns,
        )

    def _state_of(self, case: Case, size: ModelSize) -> dict[str, int]:
        """Bytes of weights, gradients and moments of a rank while it updates the weights."""
        name = case.implementation
        if self.implementation(name).origin != "project":
            name = _STORES[kind_of(self.callable_of(name))]
        return state_bytes(name, size, case.axes["ranks"])

    def build_of(self, name: str):
        """How to make an implementation's training, and how its blocks run.

        Returns (function of a `lmperf.distributed.strategies.Setup`, `eager` or a key of its
        `BLOCKS`).
        """
        from lmperf.own.strategy import trained

        implementation, made = self.implementation(name), self.callable_of(name)
        if implementation.origin == "project":
            blocks = implementation.options.get("blocks", "eager")
            return made, "compiled" if implementation.compiles else blocks
        return partial(trained, made), "eager"
