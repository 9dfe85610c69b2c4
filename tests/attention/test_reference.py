import pytest
import torch

from lmperf.attention import reference
from lmperf.attention.reference import attention_float64, bytes_moved, flops


def by_autograd(q, k, v, grad_out, causal, scale):
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    scores = leaves[0] @ leaves[1].transpose(-2, -1) * scale
    if causal:
        scores = scores + torch.full_like(scores, -torch.inf).triu(1)
    out = scores.softmax(-1) @ leaves[2]
    gradients = torch.autograd.grad(out, leaves, grad_out)
    return {
        "out": out.detach(),
        "lse": scores.detach().logsumexp(-1),
        **dict(zip(("dq", "dk", "dv"), gradients, strict=True)),
    }


@pytest.mark.parametrize("causal, chunk", [(False, 1000), (True, 1000), (True, 1)])
def test_float64_reference_matches_autograd(monkeypatch, causal, chunk):
    monkeypatch.setattr(reference, "CHUNK_ELEMENTS", chunk)
    x = [torch.randn(2, 3, 37, 8, dtype=torch.float64) for _ in range(4)]
    got = attention_float64(*x, causal, scale=0.5)
    for name, expected in by_autograd(*x, causal, 0.5).items():
        torch.testing.assert_close(got[name], expected, rtol=1e-10, atol=1e-12)


def test_flops_and_bytes_follow_the_closed_forms():
    assert flops(2, 3, 1000, 64, causal=False) == 4 * 2 * 3 * 1000**2 * 64
    causal = 10 * 2 * 3 * 64 * (1000 * 1001 // 2)
    assert flops(2, 3, 1000, 64, causal=True, phase="backward") == causal
    both = flops(1, 1, 8, 4, False, "forward") + flops(1, 1, 8, 4, False, "backward")
    assert flops(1, 1, 8, 4, False, "forward_backward") == both
    q = torch.empty(2, 3, 100, 16, dtype=torch.bfloat16)
    lse = torch.empty(2, 3, 100)
    assert bytes_moved(2, 3, 100, 16, "bfloat16", "forward") == 4 * q.nbytes + lse.nbytes
    assert bytes_moved(2, 3, 100, 16, "bfloat16", "backward") == 8 * q.nbytes + lse.nbytes
    with pytest.raises(KeyError):
        flops(1, 1, 8, 4, False, "sideways")
