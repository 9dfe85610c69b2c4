"""The benchmark of plain PyTorch attention: time and memory by sequence length.

Plain attention stores its scores, a [batch, seq_len, seq_len] tensor.
"""

from __future__ import annotations

from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Timed, Workload, grid, numbers
from lmperf.dtypes import PLAIN_DTYPES
from lmperf.own.kinds import ATTENTION

_LENGTHS, _WIDTHS = [256, 1024, 4096, 8192, 16384], [16, 32, 64, 128]
_ON_CPU, _ON_GPU = ["float32", "bfloat16"], ["float32", "tf32", "bfloat16"]
_cells = partial(grid, batch=8, causal=False)


class Attention(Timed):
    title = "Attention"
    order = 40
    columns = numbers("error_out", "error_dq", "error_dk", "error_dv")
    axes = (
        Axis("batch", int),
        Axis("seq_len", int),
        Axis("d_head", int),
        dtype_axis(PLAIN_DTYPES),
        Axis("causal", bool),
    )
    together = ("dtype",)
    takes = ATTENTION
    phases = ("forward", "backward")
    # Both implementations store their scores in the dtype of the inputs.
    implementations = (
        Implementation("eager", "lmperf.attention.reference:attention", tolerance="rounded_scores"),
        Implementation(
            "compiled",
            "lmperf.attention.library:compiled",
            tolerance="rounded_scores",
            compiles=True,
        ),
    )
    grids = {
        "cpu": [
            _cells(
                seq_len=[256, 512, 1024], d_head=[16, 64], dtype=_ON_CPU, implementation="eager"
            ),
            _cells(seq_len=512, d_head=64, dtype="float32", implementation="compiled"),
        ],
        "gpu": [
            _cells(seq_len=_LENGTHS, d_head=_WIDTHS, dtype=_ON_GPU, implementation="eager"),
            _cells(seq_len=_LENGTHS, d_head=[64, 128], dtype=_ON_GPU, implementation="compiled"),
        ],
        "full": [
            _cells(seq_len=_LENGTHS, d_head=_WIDTHS, dtype=_ON_GPU, implementation="compiled")
        ],
    }
    head = {
        "cpu": [{"seq_len": [512], "d_head": [64]}],
        "gpu": [{"seq_len": [4096], "d_head": [64]}],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.attention.problem import AttentionProblem
        from lmperf.compiler import require_compiler
        from lmperf.own.attention import Fitted

        axes, implementation = case.axes, self.require(case, device)
        if implementation.compiles:
            require_compiler(device)
        shape = (axes["batch"], axes["seq_len"], axes["d_head"])
        problem = AttentionProblem.of(shape, axes["dtype"], axes["causal"], device, seed, shared)
        function = self.callable_of(implementation.name)
        if implementation.origin != "project":
            function = Fitted(function)
        return problem.workload(
            function, self.phases, implementation.compiles, implementation.tolerance
        )
