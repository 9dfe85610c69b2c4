"""FlashAttention-2: the project's Triton kernels, and their peers, beside plain attention.

On a machine without a GPU the tables compare the tiled PyTorch version with plain and SDPA
attention, and the kernels are checked under Triton's interpreter (`flash_attention_check`), never
timed.
"""

from __future__ import annotations

from lmperf.benchmark import Axis, Case, Timed, Unsupported, Workload

_HALF_ONLY = ("sdpa_cudnn", "sdpa_flash")
_COMPILES = ("flex", "triton")
_ROUNDS_SCORES = ("eager", "tiled")


class FlashAttention(Timed):
    title = "FlashAttention-2"
    axes = (
        Axis("batch", int),
        Axis("heads", int),
        Axis("seq_len", int),
        Axis("d_head", int),
        Axis("dtype", str, ("float32", "tf32", "float16", "bfloat16")),
        Axis("causal", bool),
    )
    phases = ("forward", "backward", "forward_backward")
    check = "flash_attention_check"
    implementations = {
        "eager": "lmperf.kernels.attention_reference:attention",
        "tiled": "lmperf.kernels.tiled_attention:tiled_attention",
        "triton": "lmperf.kernels.flash_attention:flash_attention",
        "sdpa": "lmperf.kernels.library_attention:sdpa",
        "sdpa_cudnn": "lmperf.kernels.library_attention:sdpa_cudnn",
        "sdpa_flash": "lmperf.kernels.library_attention:sdpa_flash",
        "sdpa_efficient": "lmperf.kernels.library_attention:sdpa_efficient",
        "flex": "lmperf.kernels.library_attention:flex",
    }
    grids = {
        "cpu": [
            {
                "batch": [1],
                "heads": [1],
                "seq_len": [128, 512, 2048],
                "d_head": [16, 64],
                "dtype": ["float32", "bfloat16"],
                "causal": [True],
                "implementation": ["eager", "tiled", "sdpa"],
            },
            {
                "batch": [1],
                "heads": [1],
                "seq_len": [4096],
                "d_head": [64],
                "dtype": ["float32", "bfloat16"],
                "causal": [True],
                "implementation": ["eager", "tiled", "sdpa"],
            },
        ],
        "gpu": [
            {
                "batch": [1],
                "heads": [1],
                "seq_len": [2**power for power in range(7, 17)],
                "d_head": [16, 32, 64, 128],
                "dtype": ["bfloat16", "float32"],
                "causal": [True],
                "implementation": [
                    "eager",
                    "triton",
                    "sdpa_cudnn",
                    "sdpa_flash",
                    "sdpa_efficient",
                ],
            },
            {
                "batch": [1],
                "heads": [1],
                "seq_len": [1024, 4096, 16384],
                "d_head": [64],
                "dtype": ["bfloat16"],
                "causal": [True],
                "implementation": ["flex"],
            },
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.kernels.attention_problem import AttentionProblem

        axes = case.axes
        if case.implementation in _HALF_ONLY and axes["dtype"] in ("float32", "tf32"):
            raise Unsupported("takes float16 and bfloat16 only")
        shape = (axes["batch"], axes["heads"], axes["seq_len"], axes["d_head"])
        problem = AttentionProblem.of(shape, axes["dtype"], axes["causal"], device, seed, shared)
        function = self.callable_of(case.implementation)
        name = case.implementation
        return problem.workload(function, self.phases, name in _COMPILES, name in _ROUNDS_SCORES)
