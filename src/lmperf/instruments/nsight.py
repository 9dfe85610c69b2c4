"""Runs the phases of a model in NVTX ranges, for Nsight Systems.

    nsys profile --trace cuda,nvtx python -m lmperf.instruments.nsight small 512 4 float32

CUPTI serves one profiler at a time, so the benchmark `profiles`, which uses torch.profiler, cannot
run under nsys. This module runs the same phases of the same cell without torch.profiler. Each phase
is a range that contains ranges of the operators and of the three parts of attention.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lmperf.dtypes import MODEL_STORED_DTYPES
from lmperf.instruments.profiling import ranged_attention
from lmperf.names import PHASES
from lmperf.precision import precision
from lmperf.transformer.implementations import with_attention
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.sizes import ALIASES, SIZES

_WARM_UPS = 2


@contextmanager
def phase_range(name: str) -> Iterator[None]:
    """An NVTX range that ends when the device has finished the work queued in it."""
    with torch.cuda.nvtx.range(name):
        yield
        torch.cuda.synchronize()


def run(size: str, context: int, batch: int, dtype: str, device: str = "cuda") -> None:
    """Run each phase once after warm-up, in eager mode with plain attention, as in `profiles`."""
    problem = ModelProblem(size, context, batch, device, seed=0)
    phases = problem.phases(with_attention(problem.model, ranged_attention), dtype)
    with precision(dtype):
        for name in PHASES:
            phase = phases[name]
            for _ in range(_WARM_UPS):
                phase.run(phase.before())
            state = phase.before()
            with torch.autograd.profiler.emit_nvtx(), phase_range(name):
                phase.run(state)


def main(arguments: list[str]) -> int:
    """Run a cell; returns the exit code: 2, with a message, for an invalid cell or without CUDA."""
    usage = "nsight: expected size, context length, batch and dtype, e.g. small 512 4 float32"
    try:
        size, context, batch, dtype = arguments
        cell = ALIASES.get(size, size), int(context), int(batch), dtype
    except ValueError:
        print(usage, file=sys.stderr)
        return 2
    if cell[0] not in SIZES or dtype not in MODEL_STORED_DTYPES or min(cell[1:3]) < 1:
        known = f"sizes: {', '.join(SIZES)}; dtypes: {', '.join(MODEL_STORED_DTYPES)}"
        print(f"{usage}; {known}; got {' '.join(arguments)}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("nsight: torch finds no CUDA device", file=sys.stderr)
        return 2
    run(*cell)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
