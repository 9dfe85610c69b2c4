"""The benchmark of a public leaderboard's train step on several GPUs, a part of the batch each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Phase, Rank, RankedTimed, Workload, numbers
from lmperf.benchmarks.leaderboard import SIZE, cells, shape_of

# Blocks that keep the results of their matmuls: as many as fit into an H200 with one sequence.
_WHOLE, _SHARDED = 25, 32
# Likewise, fully sharded: float32 weights, gradients and moments take 30 GiB more than above.
_FULLY_SHARDED = 4
FSDP2, AUTOCAST = "fsdp2", "autocast_bfloat16"


def _strategy(
    name: str,
    matmuls: int,
    entry: str = "leaderboard:RankProblem",
    dtype: str = "bfloat16",
    **options: bool,
) -> Implementation:
    return Implementation(
        name,
        f"lmperf.distributed.{entry}",
        {"matmuls": matmuls, **options},
        compiles=True,
        needs_cuda=True,
        only={"dtype": (dtype,)},
    )


_cells = partial(cells, ranks=2)
FSDP2_GRID = _cells(implementation=[FSDP2], dtype=AUTOCAST)


class DistributedLeaderboard(RankedTimed):
    title = "A public leaderboard's train step on several GPUs"
    section = "distributed"
    columns = numbers(
        *("parameters", "tokens", "matmul_blocks"),
        *("error_loss", "error_gradient", "error_gain", "error_full_loss"),
        *("error_parameters", "error_ranks"),
    )
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
        Axis("ranks", int),
        dtype_axis(("bfloat16", AUTOCAST)),
    )
    phases = ("train_step",)
    clock = "step"
    steps = 3
    limit_s = 600.0
    implementations = (
        _strategy("data_parallel", _WHOLE),
        _strategy("sharded_moments", _SHARDED, sharded=True),
        _strategy("sharded_moments_fused", _SHARDED, sharded=True, fused=True),
        _strategy(FSDP2, _FULLY_SHARDED, "sharded_leaderboard:ShardedProblem", AUTOCAST),
    )
    grids = {
        "gpu": [
            _cells(implementation=["sharded_moments_fused"]),
            FSDP2_GRID,
        ],
        "full": [_cells(implementation=["data_parallel", "sharded_moments"])],
    }

    def groups(self, cases):
        """Return a group for each case: two strategies do not fit into a device together."""
        return [[case] for case in cases]

    def built(self, case: Case, rank: Rank, seed: int) -> tuple[Any, Callable[[], Any], Callable]:
        """A case's problem, its step, and a function that checks both."""
        import torch

        from lmperf.benchmark import resolve
        from lmperf.compiler import require_compiler
        from lmperf.distributed import leaderboard, sharded_leaderboard
        from lmperf.transformer.checkpointing import ATTENTION
        from lmperf.transformer.leaderboard import kept_by_block

        implementation, shape = self.require(case, rank.device), shape_of(case)
        require_compiler(rank.device)
        options = dict(implementation.options)
        matmuls = options.pop("matmuls")
        make = partial(resolve(implementation.entry), **options)
        # Blocks of different sizes come and go: fixed segments would not fit into the device.
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        problem = make(shape, rank, seed)
        kept = kept_by_block(shape.size.num_layers, ATTENTION, matmuls)
        step = problem.step(kept)
        check = (sharded_leaderboard if case.implementation == FSDP2 else leaderboard).gate
        return problem, step, partial(check, problem, step, kept, seed, make, rank)

    def prepare_rank(self, case: Case, rank: Rank, seed: int, shared: dict) -> Workload:
        from lmperf.precision import precision
        from lmperf.transformer.flops import flops

        shape = shape_of(case)
        problem, step, gate = self.built(case, rank, seed)
        work = flops(shape.size, shape.context, shape.batch, "train_step", shape.vocab)
        return Workload(
            {"train_step": Phase(lambda _: step(), flops=work)},
            gate=lambda _: gate(),
            freshen=problem.freshen,
            resident=problem.resident,
            compiles=True,
            context=partial(precision, case.axes["dtype"]),
            columns={
                "parameters": shape.size.parameters(shape.vocab),
                "tokens": shape.batch * shape.context,
                "matmul_blocks": self.implementation(case.implementation).options["matmuls"],
            },
        )
