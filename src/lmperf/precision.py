"""Translates a value of the dtype axis into torch settings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from lmperf.dtypes import dtype_of

_CALLS = 7
_MATMUL_PRECISION = {"ieee": "highest", "tf32": "high"}


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
    mode = _MATMUL_PRECISION[dtype_of(dtype).mode]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(mode)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def bf16_slowdown(shape: str) -> float:
    """How many times as long a matmul takes in bf16 as in float32 on the CPU.

    shape: m x n x k of the matmul, such as 512x512x512.
    """
    m, n, k = map(int, shape.split("x"))

    def least_s(dtype: torch.dtype) -> float:
        a, b, found = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), []
        for _ in range(_CALLS):
            start = time.perf_counter()
            torch.mm(a, b)
            found.append(time.perf_counter() - start)
        return min(found)

    return least_s(torch.bfloat16) / least_s(torch.float32)
