"""Tests of the table of dtypes and of the torch settings that follow from it."""

import pytest
import torch

from lmperf.dtypes import DTYPES
from lmperf.precision import precision


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
