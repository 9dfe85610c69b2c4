"""Translates a value of the dtype axis into torch settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from lmperf.dtypes import dtype_of

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
