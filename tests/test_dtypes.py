"""Tests of the table of dtypes and of the torch settings that follow from it."""

import pytest
import torch

from lmperf.dtypes import DTYPES, dtype_of
from lmperf.precision import precision, storage_dtype


@pytest.mark.parametrize("name", DTYPES)
def test_torch_storage_dtype_has_the_bytes_of_dtype(name):
    assert storage_dtype(name).itemsize == dtype_of(name).bytes


def test_only_tf32_multiplies_float32_in_tf32():
    modes = {}
    for name in DTYPES:
        with precision(name):
            modes[name] = torch.get_float32_matmul_precision()
    assert {name for name, mode in modes.items() if mode == "high"} == {"tf32"}
    assert set(modes.values()) == {"high", "highest"}


def test_precision_is_restored_after_an_error():
    before = torch.get_float32_matmul_precision()
    with pytest.raises(RuntimeError), precision("tf32"):
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("use", [dtype_of, storage_dtype, lambda name: precision(name).__enter__()])
def test_unknown_dtype_is_an_error(use):
    with pytest.raises(ValueError, match="unknown dtype 'fp8'; known dtypes: float32, tf32"):
        use("fp8")
