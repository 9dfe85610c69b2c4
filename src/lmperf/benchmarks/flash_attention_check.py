"""Kernel tests of the Triton FlashAttention-2, as evidence: odd lengths, odd widths, strides.

On a machine without a GPU they run under Triton's interpreter, in float32 and float16: bfloat16 is
wrong there. Nothing is timed.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from lmperf.benchmark import Axis, Case, Observed, Unsupported, numbers
from lmperf.gate import Gate
from lmperf.names import PLAIN_DTYPES


class FlashAttentionCheck(Observed):
    title = "FlashAttention-2: kernel tests"
    section = "flash_attention"
    columns = numbers("error_out", "error_dq", "error_dk", "error_dv", "error_lse")
    axes = (
        Axis("batch", int),
        Axis("heads", int),
        Axis("seq_len", int),
        Axis("d_head", int),
        Axis("dtype", str, PLAIN_DTYPES),
        Axis("causal", bool),
        Axis("layout", str, ("contiguous", "strided")),
    )
    phases = ("forward_backward",)
    is_check = True
    grids = {
        "cpu": [
            {
                "batch": [1],
                "heads": [2],
                "seq_len": [1, 127],
                "d_head": [16, 64, 80],
                "dtype": ["float32", "float16"],
                "causal": [True, False],
                "layout": ["contiguous"],
                "implementation": ["triton"],
            },
            {
                "batch": [2],
                "heads": [1],
                "seq_len": [130],
                "d_head": [40, 256],
                "dtype": ["float32", "float16"],
                "causal": [True],
                "layout": ["strided"],
                "implementation": ["triton"],
            },
        ],
        "gpu": [
            {
                "batch": [2],
                "heads": [3],
                "seq_len": [127, 4127],
                "d_head": [16, 40, 64, 80, 128, 256],
                "dtype": ["float32", "float16", "bfloat16"],
                "causal": [True, False],
                "layout": ["contiguous"],
                "implementation": ["triton"],
            },
            {
                "batch": [2],
                "heads": [3],
                "seq_len": [1, 1000],
                "d_head": [64],
                "dtype": ["float32", "tf32", "bfloat16"],
                "causal": [True, False],
                "layout": ["contiguous"],
                "implementation": ["triton"],
            },
            {
                "batch": [2],
                "heads": [3],
                "seq_len": [1000],
                "d_head": [64, 80],
                "dtype": ["float32", "bfloat16"],
                "causal": [True, False],
                "layout": ["strided"],
                "implementation": ["triton"],
            },
        ],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        if importlib.util.find_spec("triton") is None:
            raise Unsupported("Triton is not installed, or has no wheel for this platform")
        from lmperf.attention.accuracy import error_bound
        from lmperf.attention.check import errors
        from lmperf.attention.library import by_pytorch

        found = errors(case.axes, device, seed)
        bounds = {name: error_bound(name, case.axes["dtype"]) for name in found}
        gate = Gate(found, bounds, lambda: errors(case.axes, device, seed, by_pytorch))
        return [gate.columns]
