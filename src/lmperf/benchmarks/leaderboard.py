"""The benchmark of a public leaderboard's train step: 8.1B parameters, context 32,768, batch 2."""

from __future__ import annotations

from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Phase, Timed, Workload, grid, numbers
from lmperf.transformer.sizes import LEADERBOARD, LEADERBOARD_VOCAB

NAME, CONTEXT, BATCH = "8.1B", 32_768, 2
# Blocks that keep the results of their matmuls: as many as fit into an H200.
_MATMULS = 9
SIZE = Axis("size", str, (NAME,), meaning=lambda _: (*LEADERBOARD.dimensions, LEADERBOARD_VOCAB))


def _kept(name: str, rest: str, matmuls: int = 0) -> Implementation:
    """A step whose last `matmuls` blocks keep their matmuls, and the others `rest`."""
    entry, options = "lmperf.transformer.leaderboard:kept_by_block", {"rest": rest}
    options["matmuls"] = matmuls
    return Implementation(name, entry, options, compiles=True, needs_cuda=True)


_cells = partial(grid, size=NAME, context_length=CONTEXT, batch=BATCH, dtype="bfloat16")


class Leaderboard(Timed):
    title = "A public leaderboard's train step"
    section = "end_to_end"
    columns = numbers(
        *("parameters", "tokens", "matmul_blocks"),
        *("error_loss", "error_gradient", "error_gain", "error_full_loss"),
    )
    axes = (
        SIZE,
        Axis("context_length", int, length=True),
        Axis("batch", int),
        dtype_axis(("bfloat16",)),
    )
    phases = ("train_step",)
    clock = "step"
    steps = 3
    limit_s = 600.0
    implementations = (
        _kept("recompute_all", "input"),
        _kept("keep_attention", "attention"),
        _kept("keep_matmuls", "attention", _MATMULS),
    )
    grids = {
        "gpu": [_cells(implementation=["keep_matmuls"])],
        "full": [_cells(implementation=["recompute_all", "keep_attention"])],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch

        from lmperf.compiler import require_compiler
        from lmperf.transformer.flops import flops
        from lmperf.transformer.leaderboard import LongProblem, gate

        implementation = self.require(case, device)
        require_compiler(device)
        size, vocab = LEADERBOARD, LEADERBOARD_VOCAB
        _, context, batch, _ = (case.axes[axis.name] for axis in self.axes)
        kept = self.callable_of(implementation.name)(size.num_layers)
        if not shared:
            # Blocks of different sizes come and go: fixed segments would not fit into the device.
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
            shared["problem"] = LongProblem(size, vocab, context, batch, device, seed)
        problem: LongProblem = shared["problem"]
        step = problem.step(kept)
        work = flops(size, context, batch, "train_step", vocab)
        return Workload(
            {"train_step": Phase(lambda _: step(), flops=work)},
            gate=lambda _: gate(problem, step, kept, seed),
            freshen=problem.freshen,
            resident=problem.resident,
            compiles=True,
            columns={
                "parameters": size.parameters(vocab),
                "tokens": batch * context,
                "matmul_blocks": implementation.options["matmuls"],
            },
        )
