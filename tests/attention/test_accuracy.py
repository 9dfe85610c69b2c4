import functools
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


@pytest.mark.parametrize("chunk", [1, 1 << 24])
def test_short_last_block_is_merged_with_the_previous(monkeypatch, chunk):
    monkeypatch.setattr("lmperf.attention.accuracy.CHUNK_ELEMENTS", chunk)
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


def test_invalid_arguments_are_rejected_by_name():
    with pytest.raises(ValueError, match="same shape"):
        blockwise_error(torch.zeros(3, 4), torch.zeros(4, 3))
    with pytest.raises(ValueError, match="not finite"):
        blockwise_error(torch.zeros(3, 4), torch.full((3, 4), math.nan))
    with pytest.raises(ValueError, match="tensor must be"):
        error_bound("dp", "float32")
    with pytest.raises(ValueError, match="dtype must be"):
        error_bound("out", "fp8")
    with pytest.raises(ValueError, match="tolerance must be one of strict, rounded_scores, got"):
        error_bound("out", "bfloat16", "loose")


@functools.cache
def errors_without_a_key_tile(d: int) -> dict[str, float]:
    """Errors of attention over 65,536 keys if it leaves out 64 of the keys."""
    n = 65536
    q, grad_out, k, v = unit_normal(64, d), unit_normal(64, d), unit_normal(n, d), unit_normal(n, d)
    k_cut, v_cut = (torch.cat([t[: n // 2], t[n // 2 + 64 :]]) for t in (k, v))
    reference = attention_float64(q, k, v, grad_out, causal=False)
    broken = attention_float64(q, k_cut, v_cut, grad_out, causal=False)
    return attention_errors({t: broken[t] for t in ("out", "dq", "lse")}, reference)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [16, 128])
def test_dropped_key_tile_at_65536_exceeds_the_bound(dtype, d):
    errors = errors_without_a_key_tile(d)
    for tensor in ("out", "dq"):
        assert errors[tensor] > error_bound(tensor, dtype)
    if dtype != "tf32":
        assert errors["lse"] > error_bound("lse", dtype)


@functools.cache
def errors_without_a_query_tile() -> tuple[dict[str, float], dict[str, float]]:
    """Errors of dk and dv that lack one query tile: by block, and over the whole tensor."""
    n, d, keys, queries = 4096, 64, slice(1024, 1088), slice(2048, 2112)
    q, k, v, grad_out = (unit_normal(1, n, d) for _ in range(4))
    reference = attention_float64(q, k, v, grad_out, causal=True)
    scores = q[:, queries] @ k[:, keys].transpose(1, 2) * d**-0.5
    p = (scores - reference["lse"][:, queries, None]).exp()
    delta = (grad_out * reference["out"])[:, queries].sum(-1, keepdim=True)
    ds = p * (grad_out[:, queries] @ v[:, keys].transpose(1, 2) - delta) * d**-0.5
    broken = {t: reference[t].clone() for t in ("dk", "dv")}
    broken["dv"][:, keys] -= p.transpose(1, 2) @ grad_out[:, queries]
    broken["dk"][:, keys] -= ds.transpose(1, 2) @ q[:, queries]
    whole = {
        t: float(torch.linalg.vector_norm(broken[t] - reference[t]) / torch.linalg.vector_norm(r))
        for t, r in ((t, reference[t]) for t in broken)
    }
    return attention_errors(broken, reference), whole


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_dropped_query_tile_exceeds_the_bound(dtype):
    errors, whole = errors_without_a_query_tile()
    for tensor, error in errors.items():
        assert error > error_bound(tensor, dtype)
        assert whole[tensor] < 0.02
