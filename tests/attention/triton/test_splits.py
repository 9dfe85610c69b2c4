"""Split loops, operands split into float16 halves, and TMA loads do not change results."""

import pytest
import torch

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton import backward as backward_pass
from lmperf.attention.triton import forward as forward_pass
from lmperf.attention.triton import operands
from lmperf.attention.triton.configurations import Configuration
from lmperf.attention.triton.key_gradients import KeyGradients
from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.query_gradients import QueryGradients
from lmperf.attention.triton.tiles import dot_precision
from lmperf.benchmarks.flash_attention_check import uninitialised_memory_is_nan

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def results(x, causal, chunk, blocks=(32, 16)):
    """out, lse, dq, dk and dv of q, k, v, dO, computed in chunks of `chunk`."""
    q, k, v, grad_out = x
    scale = q.shape[-1] ** -0.5
    owns_queries = Configuration(*blocks, 4, 1, chunk)
    owns_keys = Configuration(*blocks[::-1], 4, 1, chunk)
    with uninitialised_memory_is_nan():
        out, lse = forward_pass.forward(q, k, v, causal, scale, owns_queries)
        forms = [Form.of(t) for t in x]
        reads = operands.Inputs(*forms, causal, scale, dot_precision(q.dtype))
        delta = operands.Delta(Form.of(out), forms[3])(out, grad_out)
        read = reads.operands(*x, lse, delta)
        dk, dv = KeyGradients(reads, forms[1], forms[2], owns_keys)(read, k, v)
        dq = QueryGradients(reads, forms[0], owns_queries)(read, q)
    return {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def inputs(n, d, dtype=torch.float32, sizes=(1.0, 1.0, 1.0, 1.0), heads=2):
    torch.manual_seed(n)
    return [(size * torch.randn(1, heads, n, d, device=DEVICE)).to(dtype) for size in sizes]


def assert_right(got, x, causal, dtype="float32"):
    errors = attention_errors(got, attention_float64(*x, causal))
    for tensor, error in errors.items():
        assert error <= error_bound(tensor, dtype), tensor


@pytest.mark.parametrize(
    "n, heads, causal, blocks",
    [(40, 2, True, (32, 16)), (40, 1, False, (16, 32)), (64, 1, True, (16, 32))],
)
def test_chunked_results_match_unsplit_results(n, heads, causal, blocks):
    """The last chunk is incomplete, or all are whole."""
    x = inputs(n, 24, heads=heads)
    assert_right(results(x, causal, 32, blocks), x, causal)


@pytest.fixture
def in_halves(monkeypatch):
    for module in (forward_pass, operands):
        monkeypatch.setattr(module, "products_of", lambda dtype: 3)


def test_float16_halves_are_as_accurate_as_float32(in_halves):
    x = inputs(40, 24, sizes=(1e-12, 1e12, 1e-5, 1e-20), heads=1)
    assert_right(results(x, False, 32), x, False)


def test_zeros_and_huge_values_split_into_float16_halves(in_halves):
    x = inputs(20, 16, sizes=(1.0, 1.0, 0.0, 1.0), heads=1)
    got = results(x, True, 0)
    for tensor in ("out", "dq", "dk"):
        assert not got[tensor].any(), tensor
    x = inputs(20, 16, sizes=(1e-30, 1e30, 1e30, 1e-30), heads=1)
    assert_right(results(x, True, 0), x, True)


def test_tma_loads_match_pointer_loads(monkeypatch):
    if DEVICE == "cuda" and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("descriptors need a Hopper GPU")
    dtype = torch.float16
    x = inputs(40, 24, dtype, heads=1)
    found = []
    for is_described in (False, True):
        forward_pass.plan.cache_clear()
        for module in (forward_pass, operands):
            monkeypatch.setattr(module, "tma_readable", lambda *t, said=is_described: said)
        found.append(results(x, True, 32))
    for tensor, value in found[0].items():
        torch.testing.assert_close(value, found[1][tensor], rtol=0, atol=0, msg=tensor)


@pytest.mark.gpu
@pytest.mark.parametrize("n, d", [(2048, 16), (5000, 64), (5000, 80), (2048, 128)])
def test_chosen_configurations_are_within_bounds(n, d):
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float32, "float32")):
        x = [t.contiguous() for t in inputs(n, d, dtype)]
        scale = d**-0.5
        out, lse = forward_pass.forward(*x[:3], True, scale)
        gradients = backward_pass.backward(*x[:3], out, lse, x[3], None, True, scale)
        got = {"out": out, "lse": lse, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}
        assert_right(got, x, True, name)
