"""Kernel tests of the Triton md_lrpe_cosine with odd shapes, odd widths and extra tokens.

Nothing is timed. Without a GPU the tests run under Triton's interpreter in float32 and float16,
because the interpreter computes bfloat16 wrongly.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from lmperf.benchmark import Case, Implementation, Observed, grid, numbers
from lmperf.benchmarks.lrpe import Lrpe
from lmperf.dtypes import STORED_DTYPES
from lmperf.own.kinds import LRPE

_FEW_SHAPES = ["4097", "31x129", "31x9x17", "5x3x7x2x11"]
_cells = partial(grid, batch=3, heads=2, implementation=["triton", "triton_cached"])


class LrpeCheck(Observed):
    title = "md_lrpe_cosine: kernel tests"
    section = "lrpe"
    columns = numbers(
        "error_out", "error_norm", "error_dx", "error_inverse", "error_difference", "error_angle"
    )
    axes = Lrpe.axes
    takes = LRPE
    phases = ("forward_backward",)
    is_check = True
    implementations = (
        Implementation("triton", "lmperf.lrpe.triton:lrpe_cosine"),
        Implementation(
            "triton_cached", "lmperf.lrpe.triton:lrpe_cosine", options={"cache_angles": True}
        ),
    )
    grids = {
        "cpu": [
            _cells(
                batch=2,
                shape=["37", "5x7", "3x4x5"],
                d_head=40,
                extra_tokens=3,
                dtype=["float32", "float16"],
            )
        ],
        "gpu": [
            _cells(shape=_FEW_SHAPES, d_head=40, extra_tokens=10, dtype=STORED_DTYPES),
            _cells(shape=["1", "65536"], d_head=128, extra_tokens=0, dtype=STORED_DTYPES),
            _cells(shape="31x9x17", d_head=64, extra_tokens=0, dtype=["float32", "bfloat16"]),
        ],
        "full": [
            _cells(
                shape=["1", "65536", *_FEW_SHAPES],
                d_head=[40, 64, 128],
                extra_tokens=[0, 10],
                dtype=STORED_DTYPES,
            )
        ],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_triton

        require_triton()
        from lmperf.lrpe.problem import LrpeProblem

        axes = case.axes
        lengths = tuple(map(int, axes["shape"].split("x")))
        sizes = axes["batch"], axes["heads"], lengths, axes["d_head"], axes["extra_tokens"]
        problem = LrpeProblem(*sizes, axes["dtype"], device, seed)
        gate = problem.gate(self.callable_of(case.implementation), ("forward", "backward"))
        return [gate.columns]
