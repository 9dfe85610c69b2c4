"""The benchmark of md_lrpe_cosine: our Triton kernels against PyTorch and an equally large copy.

Without a GPU, only PyTorch is timed, and `lrpe_check` checks the kernels under Triton's
interpreter.
"""

from __future__ import annotations

import math
from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Timed, Trial, Workload, grid, numbers
from lmperf.dtypes import STORED_DTYPES
from lmperf.own.kinds import LRPE

_MIB = 2**20
_FEW_SHAPES = ["256", "32768", "16x16", "128x128", "8x8x8", "32x32x32"]
_SHAPES = [
    *(str(2**power) for power in range(8, 16)),
    *("x".join([str(2**power)] * 2) for power in range(4, 8)),
    *("x".join([str(2**power)] * 3) for power in range(2, 6)),
]


_cells = partial(
    grid,
    batch=12,
    heads=12,
    d_head=128,
    dtype="bfloat16",
    implementation=["copy", "eager", "compiled", "triton", "triton_cached"],
)


class Lrpe(Timed):
    title = "md_lrpe_cosine"
    order = 70
    columns = (
        *numbers("predicted_forward_mib", "predicted_backward_mib", "error_out", "error_norm"),
        *numbers("error_dx", "error_inverse", "error_difference", "error_angle"),
    )
    axes = (
        Axis("batch", int),
        Axis("heads", int),
        Axis("shape", str, pattern=r"^[1-9][0-9]*(x[1-9][0-9]*)*$"),
        Axis("d_head", int),
        Axis("extra_tokens", int, least=0),
        dtype_axis(STORED_DTYPES),
    )
    takes = LRPE
    phases = ("forward", "backward")
    check = "lrpe_check"
    implementations = (
        Implementation("copy"),
        Implementation("eager", "lmperf.lrpe.reference:lrpe_cosine", tolerance="rounded_angles"),
        Implementation(
            "compiled", "lmperf.lrpe.reference:compiled", tolerance="rounded_angles", compiles=True
        ),
        Implementation("triton", "lmperf.lrpe.triton:lrpe_cosine", compiles=True),
        Implementation(
            "triton_cached",
            "lmperf.lrpe.triton:lrpe_cosine",
            options={"cache_angles": True},
            compiles=True,
        ),
    )
    grids = {
        "cpu": [
            grid(
                batch=2,
                heads=4,
                shape=["1024", "32x32"],
                d_head=64,
                extra_tokens=0,
                dtype="float32",
                implementation=["copy", "eager", "compiled"],
            )
        ],
        "gpu": [
            _cells(shape=_FEW_SHAPES, extra_tokens=0),
            _cells(shape=["32768", "128x128", "32x32x32"], extra_tokens=10),
        ],
        "full": [_cells(shape=_SHAPES, extra_tokens=[0, 10])],
    }
    head = {"gpu": [{"shape": ["32768"], "extra_tokens": [0]}]}
    # On a CPU, compiling takes as long as everything else.
    trials = {"cpu": Trial(beside=("eager",)), "gpu": Trial(beside=("compiled", "triton"))}
    repeated = {
        "cpu": [{"shape": ["1024"], "implementation": ["copy", "compiled"]}],
        "gpu": [
            {"shape": ["32768"], "extra_tokens": [0], "implementation": ["copy", "triton"]},
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler, require_triton
        from lmperf.lrpe.memory import predicted_peaks
        from lmperf.lrpe.problem import LrpeProblem

        axes, name = case.axes, case.implementation
        implementation = self.require(case, device)
        lengths = tuple(map(int, axes["shape"].split("x")))
        sizes = axes["batch"], axes["heads"], lengths, axes["d_head"], axes["extra_tokens"]
        problem = shared.setdefault("lrpe", LrpeProblem(*sizes, axes["dtype"], device, seed))
        if name == "copy":
            return problem.copy(self.phases)
        if name.startswith("triton"):
            require_triton()
        if name == "compiled":
            require_compiler(device)
        tokens = axes["extra_tokens"] + math.prod(lengths)
        width = -(-axes["d_head"] // len(lengths))
        peaks = predicted_peaks(
            name, axes["batch"], axes["heads"], tokens, axes["d_head"], width, axes["dtype"]
        )
        return problem.workload(
            self.callable_of(name),
            self.phases,
            compiles=implementation.compiles,
            tolerance=implementation.tolerance,
            angles_too=name != "compiled",
            columns={f"predicted_{phase}_mib": size / _MIB for phase, size in peaks.items()},
        )
