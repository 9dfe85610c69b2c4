"""The benchmark of a public leaderboard's train step on several GPUs, a part of the batch each."""

from __future__ import annotations

from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import (
    Axis,
    Case,
    Implementation,
    Phase,
    Rank,
    RankedTimed,
    Workload,
    numbers,
)
from lmperf.benchmarks.leaderboard import SIZE, cells, shape_of

# Blocks that keep the results of their matmuls: as many as fit into an H200 with one sequence.
_WHOLE, _SHARDED = 25, 32


def _strategy(name: str, matmuls: int, **options: bool) -> Implementation:
    entry = "lmperf.distributed.leaderboard:RankProblem"
    options = {"matmuls": matmuls, **options}
    return Implementation(name, entry, options, compiles=True, needs_cuda=True)


_cells = partial(cells, ranks=2)


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
        dtype_axis(("bfloat16",)),
    )
    phases = ("train_step",)
    clock = "step"
    steps = 3
    limit_s = 600.0
    implementations = (
        _strategy("data_parallel", _WHOLE),
        _strategy("sharded_moments", _SHARDED, sharded=True),
        _strategy("sharded_moments_fused", _SHARDED, sharded=True, fused=True),
    )
    grids = {
        "gpu": [_cells(implementation=["sharded_moments_fused"])],
        "full": [_cells(implementation=["data_parallel", "sharded_moments"])],
    }

    def groups(self, cases):
        """Return a group for each case: two strategies do not fit into a device together."""
        return [[case] for case in cases]

    def prepare_rank(self, case: Case, rank: Rank, seed: int, shared: dict) -> Workload:
        import torch

        from lmperf.benchmark import resolve
        from lmperf.compiler import require_compiler
        from lmperf.distributed.leaderboard import gate
        from lmperf.transformer.checkpointing import ATTENTION
        from lmperf.transformer.flops import flops
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
        work = flops(shape.size, shape.context, shape.batch, "train_step", shape.vocab)
        return Workload(
            {"train_step": Phase(lambda _: step(), flops=work)},
            gate=lambda _: gate(problem, step, kept, seed, make, rank),
            freshen=problem.freshen,
            resident=problem.resident,
            compiles=True,
            columns={
                "parameters": shape.size.parameters(shape.vocab),
                "tokens": shape.batch * shape.context,
                "matmul_blocks": matmuls,
            },
        )
