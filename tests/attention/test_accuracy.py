import math

import pytest
import torch

from lmperf.attention.accuracy import (
    UNIT_ROUNDOFF,
    attention_errors,
    blockwise_error,
    error_bound,
)
from lmperf.attention.reference import attention_float64

DTYPES = sorted(UNIT_ROUNDOFF)


def unit_normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def test_error_is_relative_to_the_rms_of_the_block():
    reference = torch.ones(2, 128, 4)
    reference[:, 64:] *= 100
    got = reference.clone()
    got[1, 3, 0] += 0.5
    assert blockwise_error(got, reference) == pytest.approx(0.5 / 2)
    got[1, 70, 0] += 10
    assert blockwise_error(got, reference) == pytest.approx(0.5 / 2)
    got[1, 70, 0] += 90
    assert blockwise_error(got, reference) == pytest.approx(100 / 200)


def test_short_last_block_is_merged_with_the_previous(monkeypatch):
    monkeypatch.setattr("lmperf.attention.accuracy.CHUNK_ELEMENTS", 1)
    n, noise = 4097, 1e-3
    reference = unit_normal(1, n, 16)
    reference[0, -1] *= 1e-4
    got = reference.clone()
    got[0, -1, 0] += noise
    scale = torch.linalg.vector_norm(reference[0, 4032:]) / 65**0.5
    assert blockwise_error(got, reference) == pytest.approx(noise / float(scale))
    got[0, -1] = 0.5
    assert blockwise_error(got, reference) > 0.4


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_values_give_an_infinite_error(value):
    reference = unit_normal(2, 100, 8)
    got = reference.clone()
    got[1, 99, 7] = value
    assert blockwise_error(got, reference) == math.inf


def test_bound_grows_with_the_rounding_of_large_scores():
    for dtype in DTYPES:
        assert error_bound("out", dtype, "strict", 0.0) == error_bound("out", dtype)
    # TF32 in float32 stays visible, and float32 sums of scores are allowed.
    assert 1e-5 < error_bound("out", "float32", "strict", 128) < UNIT_ROUNDOFF["tf32"]
    assert error_bound("out", "bfloat16", "strict", 128) < 1.01 * error_bound("out", "bfloat16")
    rounded = error_bound("out", "float16", "rounded_scores", 128)
    assert rounded == pytest.approx(280 * UNIT_ROUNDOFF["float16"], rel=0.01)


@pytest.mark.slow
def test_dropped_key_tile_at_65536_exceeds_the_bound():
    """Attention over 65,536 keys leaves out 64 of them; at d = 128 its errors are the smallest."""
    n, d = 65536, 128
    q, grad_out, k, v = unit_normal(64, d), unit_normal(64, d), unit_normal(n, d), unit_normal(n, d)
    k_cut, v_cut = (torch.cat([t[: n // 2], t[n // 2 + 64 :]]) for t in (k, v))
    reference = attention_float64(q, k, v, grad_out, causal=False)
    broken = attention_float64(q, k_cut, v_cut, grad_out, causal=False)
    errors = attention_errors({t: broken[t] for t in ("out", "dq", "lse")}, reference)
    for dtype in DTYPES:
        for tensor in ("out", "dq") if dtype == "tf32" else ("out", "dq", "lse"):
            assert errors[tensor] > error_bound(tensor, dtype), (tensor, dtype)
