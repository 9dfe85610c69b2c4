"""Translates a value of the dtype axis into torch settings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from lmperf.dtypes import dtype_of

# Calls in each dtype of `bf16_slowdown`, and how long they may take together in seconds.
_LEAST_CALLS, _CALLS, _LASTS_S = 3, 30, 1.0


def storage_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that stores tensors of a value of the dtype axis.

    Raises:
        ValueError: the dtype is unknown.
    """
    return getattr(torch, dtype_of(dtype).storage)


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """While active, run float32 matmuls in TF32 or in IEEE float32, as the dtype says.

    Raises:
        ValueError: the dtype is unknown.
    """
    mode = "high" if dtype_of(dtype).matmul == "tf32" else "highest"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(mode)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def bf16_slowdown(shape: str) -> float:
    """How many times as long a matmul takes in bf16 as in float32 on the CPU.

    Sets PyTorch to one thread: on a busy machine several wait for each other, in one dtype more
    than in the other.

    shape: m x n x k of the matmul, such as 512x512x512.
    """
    torch.set_num_threads(1)
    m, n, k = map(int, shape.split("x"))
    a, b = torch.randn(m, k), torch.randn(k, n)
    operands = {dtype: (a.to(dtype), b.to(dtype)) for dtype in (torch.bfloat16, torch.float32)}
    times: dict[torch.dtype, list[float]] = {dtype: [] for dtype in operands}
    began = time.perf_counter()
    for call in range(_CALLS):
        if call >= _LEAST_CALLS and time.perf_counter() - began > _LASTS_S:
            break
        for dtype, (left, right) in operands.items():
            start = time.perf_counter()
            torch.mm(left, right)
            times[dtype].append(time.perf_counter() - start)
    return min(times[torch.bfloat16]) / min(times[torch.float32])
