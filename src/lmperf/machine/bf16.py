"""Measures whether a CPU multiplies matrices in bf16, or emulates it.

PyTorch multiplies number by number on a CPU without the instructions, or converts to float32 and
back. What a CPU or a library says of itself does not tell: with AVX-512 alone, oneDNN claims
support and a step takes three times as long as in float32; with AVX2 a matmul takes 170 times as
long, so that a run of all benchmarks would take hours. So one small matmul is timed.

Imports no torch, since reports ask, too, which cells a machine leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from lmperf.measuring.probe import probed

# The matmul that is timed, m x n x k; `ceilings` has it on every CPU, so that reports can say why.
SHAPE = "512x512x512"
# bf16 is emulated if the matmul takes more than this many times as long as in float32.
SLOW = 2.0
_MEASURE = f"from lmperf.precision import bf16_slowdown; print(bf16_slowdown({SHAPE!r}))"


@cache
def slowdown_of(environment: str) -> float:
    """How many times as long the matmul takes in bf16 as in float32 on this machine's CPU.

    Measured once in an environment, by a process of its own. Without torch, or if the process
    fails: 1.

    environment: digest of hardware and software.
    """
    return probed(f"bf16-{environment}", _MEASURE)


def slowdown_in(rows: Iterable[Mapping[str, str]]) -> float:
    """The slowdown in rows of `ceilings`, as text; 1 if they do not tell."""
    times = {
        row["dtype"]: float(row["median_ms"])
        for row in rows
        if row["operation"] == "matmul" and row["shape"] == SHAPE and row["status"] == "ok"
    }
    return times["bfloat16"] / times["float32"] if len(times) > 1 else 1.0
