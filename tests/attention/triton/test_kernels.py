"""Tests of the kernels against float64: each pair of width and dtype, both masks and layouts."""

from functools import partial

import pytest
import torch

from lmperf.attention.accuracy import error_bound
from lmperf.attention.triton import flash_attention, forward, key_gradients, query_gradients
from lmperf.attention.triton.configurations import HOPPER, KERNELS, portable
from lmperf.benchmarks.flash_attention_check import errors

AXES = ("batch", "heads", "seq_len", "d_head", "dtype", "causal", "layout")
INTERPRETER_CASES = [
    (1, 2, 1, 16, "float32", False, "contiguous"),
    (2, 1, 70, 16, "float16", True, "strided"),
    (1, 1, 65, 40, "float32", True, "contiguous"),
    (1, 2, 40, 64, "float16", False, "contiguous"),
    (1, 1, 66, 80, "float32", False, "strided"),
    (1, 1, 70, 128, "float16", True, "strided"),
    (1, 1, 33, 256, "float32", True, "strided"),
    (1, 1, 33, 256, "float16", False, "contiguous"),
]


def name(values):
    return "-".join(map(str, values)) if isinstance(values, tuple) else str(values)


def assert_within_bounds(values, device, seed):
    axes = dict(zip(AXES, values, strict=True))
    kernels = partial(flash_attention, return_lse=True)
    for tensor, error in errors(kernels, axes, device, seed).items():
        assert error <= error_bound(tensor, axes["dtype"]), (tensor, error)


@pytest.mark.interpreter
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter stands in for a GPU")
@pytest.mark.parametrize("case", INTERPRETER_CASES, ids=name)
def test_kernels_match_float64_under_the_interpreter(case):
    assert_within_bounds(case, "cpu", seed=0)


def configurations():
    """(precision, d, kernel -> configuration): columns of the Hopper table, portable ones."""
    for precision, width in sorted({key[1:] for key in HOPPER}):
        for column in range(3):
            by_kernel = {kernel: HOPPER[kernel, precision, width][column] for kernel in KERNELS}
            yield precision, width, by_kernel
    for precision in ("half", "float32", "tf32"):
        for width in (64, 128, 256):
            yield precision, width, dict.fromkeys(KERNELS, portable(precision, width))


@pytest.mark.gpu
@pytest.mark.parametrize("precision, d, by_kernel", list(configurations()), ids=name)
def test_every_configuration_matches_float64_on_a_gpu(precision, d, by_kernel, monkeypatch):
    for module in (forward, key_gradients, query_gradients):
        monkeypatch.setattr(module, "choose", lambda kernel, *rest: by_kernel[kernel.name])
    dtypes = ("bfloat16", "float16") if precision == "half" else (precision, precision)
    for dtype, n, causal in zip(dtypes, (1000, 1024), (True, False), strict=True):
        assert_within_bounds((1, 2, n, d, dtype, causal, "contiguous"), "cuda", seed=1)
