import pytest
import torch

from lmperf.attention import tiled as module
from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.tiled import tiled_attention


@pytest.mark.parametrize(
    "tiles, causal, dtype",
    [
        ((128, 128), True, "float32"),
        ((32, 48), True, "bfloat16"),
        ((48, 32), True, "float32"),
        ((48, 32), False, "bfloat16"),
    ],
)
def test_tiled_attention_is_within_error_bounds(monkeypatch, tiles, causal, dtype):
    monkeypatch.setattr(module, "QUERY_TILE", tiles[0])
    monkeypatch.setattr(module, "KEY_TILE", tiles[1])
    q, k, v, grad_out = (torch.randn(1, 2, 70, 24).to(getattr(torch, dtype)) for _ in range(4))
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = tiled_attention(*leaves, causal)
    out.backward(grad_out)
    assert out.dtype == q.dtype
    got = {"out": out, **dict(zip(("dq", "dk", "dv"), (t.grad for t in leaves), strict=True))}
    errors = attention_errors(got, attention_float64(q, k, v, grad_out, causal))
    for tensor, error in errors.items():
        assert error <= error_bound(tensor, dtype, "rounded_scores"), tensor
