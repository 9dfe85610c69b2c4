"""The values of the dtype axis: how each is stored, and which matmul mode it stands for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_STORAGE = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def storage_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that holds tensors of a value of the dtype axis."""
    return _STORAGE.get(dtype, torch.float32)


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Matmuls of float32 tensors in TF32 for "tf32", in IEEE float32 for all else."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
