"""Refuses matmuls in bf16 on a CPU that has no instructions for them.

PyTorch then multiplies number by number. On a CPU with AVX2 alone, a matmul of 1024 x 1024 took 170
times as long as in float32, so that a run of all benchmarks would take hours.
"""

from __future__ import annotations

import platform
from functools import cache

from lmperf.benchmark import Benchmark, Case, Unsupported
from lmperf.dtypes import DTYPES

_WHY = "this CPU has no instructions for bf16 matmuls: emulated, they take far longer than float32"
# Benchmarks that multiply no matrices, or only a few small ones.
_HARDLY_MULTIPLY = ("lrpe", "mixed_precision")


def require_instructions(benchmark: Benchmark, case: Case, device: str) -> None:
    """Raise Unsupported if a case multiplies matrices that the CPU would have to emulate."""
    if device == "cpu" and _multiplies_bf16(benchmark, case) and not has_bf16():
        raise Unsupported(_WHY)


@cache
def has_bf16() -> bool:
    """Whether the CPU has instructions for bf16 matmuls; True unless PyTorch denies it on x86."""
    import torch

    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    told = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return told is None or bool(told())


def _multiplies_bf16(benchmark: Benchmark, case: Case) -> bool:
    if benchmark.is_check or benchmark.stem in _HARDLY_MULTIPLY:
        return False
    options = benchmark.implementation(case.implementation).options
    dtype = DTYPES.get(str(case.axes.get("dtype") or options.get("dtype")))
    operation = case.axes.get("operation", "matmul")
    return operation == "matmul" and dtype is not None and dtype.matmul == "bfloat16"
