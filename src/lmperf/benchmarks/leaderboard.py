"""The benchmark of a public leaderboard's train step: 8.1B parameters, context 32,768, batch 2."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Phase, Timed, Workload, grid, numbers
from lmperf.transformer.sizes import LEADERBOARD, Shape

NAME = "8.1B"
# Blocks that keep the results of their matmuls: as many as fit into an H200.
_MATMULS = 9
SIZE = Axis(
    "size", str, (NAME,), meaning=lambda _: (*LEADERBOARD.size.dimensions, LEADERBOARD.vocab)
)


def _kept(name: str, rest: str, matmuls: int = 0) -> Implementation:
    """A step whose last `matmuls` blocks keep their matmuls, and the others `rest`."""
    entry, options = "lmperf.transformer.leaderboard:kept_by_block", {"rest": rest}
    options["matmuls"] = matmuls
    return Implementation(name, entry, options, compiles=True, needs_cuda=True)


cells = partial(
    grid,
    size=NAME,
    context_length=LEADERBOARD.context,
    batch=LEADERBOARD.batch,
    dtype="bfloat16",
)


def shape_of(case: Case) -> Shape:
    """The dimensions of a case."""
    return replace(LEADERBOARD, context=case.axes["context_length"], batch=case.axes["batch"])


class Leaderboard(Timed):
    title = "A public leaderboard's train step"
    section = "end_to_end"
    columns = numbers(
        *("parameters", "tokens", "matmul_blocks"),
        *("error_loss", "error_gradient", "error_gain", "error_full_loss"),
    )
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
        dtype_axis(("bfloat16",)),
    )
    phases = ("train_step",)
    clock = "step"
    steps = 3
    limit_s = 600.0
    implementations = (
        _kept("recompute_all", "input"),
        _kept("keep_matmuls", "attention", _MATMULS),
    )
    grids = {
        "gpu": [cells(implementation=["keep_matmuls"])],
        "full": [cells(implementation=["recompute_all"])],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch

        from lmperf.compiler import require_compiler
        from lmperf.transformer.flops import flops
        from lmperf.transformer.leaderboard import TWIN, LongProblem, gate

        implementation, shape = self.require(case, device), shape_of(case)
        require_compiler(device)
        kept = self.callable_of(implementation.name)(shape.size.num_layers)
        if not shared:
            # Blocks of different sizes come and go: fixed segments would not fit into the device.
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
            shared["problem"] = LongProblem(shape, device, seed)
        problem: LongProblem = shared["problem"]
        step = problem.step(kept)
        work = flops(shape.size, shape.context, shape.batch, "train_step", shape.vocab)
        return Workload(
            {"train_step": Phase(lambda _: step(), flops=work)},
            gate=lambda _: gate(problem, step, kept, partial(LongProblem, TWIN, device, seed)),
            freshen=problem.freshen,
            resident=problem.resident,
            compiles=True,
            columns={
                "parameters": shape.size.parameters(shape.vocab),
                "tokens": shape.batch * shape.context,
                "matmul_blocks": implementation.options["matmuls"],
            },
        )
