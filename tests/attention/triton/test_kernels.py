"""Tests of the kernels against float64, in every dtype, layout, mask and configuration."""

from functools import partial

import pytest
import torch

from lmperf.attention.accuracy import error_bound
from lmperf.attention.triton import flash_attention, forward, key_gradients, query_gradients
from lmperf.attention.triton.configurations import HOPPER, KERNELS, portable
from lmperf.benchmarks.flash_attention_check import errors

# (batch, heads, seq_len, d_head)
INTERPRETER_SHAPES = [
    (1, 2, 1, 16),
    (2, 1, 127, 16),
    (1, 1, 65, 40),
    (1, 2, 96, 64),
    (1, 1, 130, 80),
    (1, 1, 70, 128),
    (1, 1, 33, 256),
]
INTERPRETER_DTYPES = ("float32", "float16")
CUDA_SHAPES = [
    (2, 3, 1, 64),
    (3, 2, 127, 40),
    (2, 2, 1000, 16),
    (1, 3, 1000, 80),
    (2, 16, 1024, 64),
    (2, 16, 1024, 128),
    (1, 2, 4097, 32),
    (1, 2, 4097, 64),
    (1, 1, 4097, 128),
    (2, 1, 1000, 256),
    # Enough work for the kernels of a Hopper GPU.
    (2, 8, 2100, 64),
    (1, 24, 1100, 80),
    (1, 24, 1100, 96),
    (1, 24, 1100, 128),
    (1, 8, 2050, 256),
]
CUDA_DTYPES = ("float32", "tf32", "float16", "bfloat16", "autocast_bfloat16")


def cases(shapes, dtypes, both_masks_up_to=256):
    """Parameters of the checks: every dtype with both layouts, every shape with both masks.

    Heads wider than `both_masks_up_to` get one mask for each dtype, because the interpreter is
    slow.
    """
    for i, (batch, heads, n, d) in enumerate(shapes):
        for j, dtype in enumerate(dtypes):
            for causal in (False, True):
                if d > both_masks_up_to and causal != ((i + j) % 2 == 1):
                    continue
                yield {
                    "batch": batch,
                    "heads": heads,
                    "seq_len": n,
                    "d_head": d,
                    "dtype": dtype,
                    "causal": causal,
                    "layout": ("contiguous", "strided")[(i // 2 + j + causal) % 2],
                }


@pytest.mark.parametrize(
    "shapes, dtypes, limit",
    [(INTERPRETER_SHAPES, INTERPRETER_DTYPES, 16), (CUDA_SHAPES, CUDA_DTYPES, 256)],
)
def test_cases_cover_both_masks_and_layouts(shapes, dtypes, limit):
    found = list(cases(shapes, dtypes, limit))
    for dtype in dtypes:
        assert len({(c["causal"], c["layout"]) for c in found if c["dtype"] == dtype}) == 4
    for axis in ("seq_len", "d_head"):
        for value in {c[axis] for c in found}:
            assert {c["causal"] for c in found if c[axis] == value} == {False, True}
    assert {16, 40, 64, 80, 128, 256} <= {c["d_head"] for c in found}
    assert any(c["seq_len"] == 1 for c in found)


def name(axes):
    return "-".join(map(str, axes.values()))


def assert_within_bounds(axes, device, seed):
    kernels = partial(flash_attention, return_lse=True)
    for tensor, error in errors(kernels, axes, device, seed).items():
        assert error <= error_bound(tensor, axes["dtype"]), (tensor, error)


@pytest.mark.interpreter
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter stands in for a GPU")
@pytest.mark.parametrize("axes", list(cases(INTERPRETER_SHAPES, INTERPRETER_DTYPES, 16)), ids=name)
def test_kernels_match_float64_under_the_interpreter(axes):
    assert_within_bounds(axes, "cpu", seed=0)


@pytest.mark.gpu
@pytest.mark.parametrize("axes", list(cases(CUDA_SHAPES, CUDA_DTYPES)), ids=name)
def test_kernels_match_float64_on_a_gpu(axes):
    assert_within_bounds(axes, "cuda", seed=0)


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
@pytest.mark.parametrize("n", [1000, 1024])
@pytest.mark.parametrize("precision, d, by_kernel", list(configurations()), ids=str)
def test_every_configuration_matches_float64_on_a_gpu(precision, d, by_kernel, n, monkeypatch):
    for module in (forward, key_gradients, query_gradients):
        monkeypatch.setattr(module, "choose", lambda kernel, *rest: by_kernel[kernel.name])
    for dtype in ("bfloat16", "float16") if precision == "half" else (precision,):
        for causal in (False, True):
            axes = {"batch": 1, "heads": 2, "seq_len": n, "d_head": d, "dtype": dtype}
            assert_within_bounds(axes | {"causal": causal, "layout": "contiguous"}, "cuda", seed=1)
