"""Tests of the fused backward pass, whose Gluon kernel runs on a Hopper GPU only."""

import pytest
import torch

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton import backward as backward_pass
from lmperf.attention.triton import flash_attention
from lmperf.attention.triton import hopper_backward as fused
from lmperf.attention.triton.configurations import FUSED
from lmperf.attention.triton.forward import forward
from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.tiles import padded
from lmperf.benchmarks.flash_attention_check import uninitialised_memory_is_nan

pytestmark = pytest.mark.interpreter


@pytest.fixture
def hopper():
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")


def gradients(x, causal):
    q, k, v, grad_out = x
    scale = q.shape[-1] ** -0.5
    out, lse = forward(q, k, v, causal, scale)
    forms = [Form.of(each) for each in (q, k, out, grad_out)]
    launches = fused.Fused(*forms, False, causal, scale, FUSED[padded(q.shape[-1])])
    with uninitialised_memory_is_nan():
        found = launches(q, k, v, out, lse, grad_out, None)
    return dict(zip(("dq", "dk", "dv"), found, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("d", [64, 80, 128, 256])
@pytest.mark.parametrize(
    "n, m", [(1, 1), (333, 333), (1024, 1024), (1025, 1025), (70, 300), (300, 70)]
)
def test_fused_gradients_are_within_error_bounds(hopper, d, n, m):
    """Masks and dtypes take turns over the pairs of lengths and widths."""
    causal = n == m and (n + d // 16) % 2 == 0
    dtype = (torch.float16, torch.bfloat16)[d in (80, 256) if n > 500 else d < 100]
    torch.manual_seed(0)
    shapes = ((2, n, 3, d), (2, m, 3, d), (2, m, 3, d), (2, n, 3, d))
    x = [torch.randn(shape, device="cuda", dtype=dtype).transpose(1, 2) for shape in shapes]
    got = gradients(x, causal)
    assert [t.stride() for t in got.values()] == [t.stride() for t in x[:3]]
    errors = attention_errors(got, attention_float64(*x, causal))
    for tensor, error in errors.items():
        assert error <= error_bound(tensor, str(dtype).removeprefix("torch.")), tensor


@pytest.mark.gpu
def test_deterministic_mode_uses_the_two_gradient_kernels(hopper, monkeypatch):
    torch.manual_seed(0)
    x = [torch.randn(2, 8, 2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    q, k, v, grad_out = x
    grad_lse = torch.randn(2, 8, 2048, device="cuda")
    out, lse = forward(q, k, v, True, 0.125)
    arguments = (q, k, v, out, lse, grad_out, grad_lse, True, 0.125)
    taken = []
    monkeypatch.setattr(backward_pass, "Fused", lambda *a: taken.append(a) or fused.Fused(*a))
    one = backward_pass.backward(*arguments)
    assert taken
    torch.use_deterministic_algorithms(True)
    try:
        pair, again = (backward_pass.backward(*arguments) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(taken) == 1
    for a, b, c in zip(one, pair, again, strict=True):
        assert torch.equal(b, c)
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)


@pytest.mark.gpu
def test_copied_dout_still_uses_the_fused_kernel(hopper, monkeypatch):
    x = [torch.randn(1, 16, 4096, 64, device="cuda").bfloat16().requires_grad_() for _ in range(3)]
    taken = []
    monkeypatch.setattr(backward_pass, "Fused", lambda *a: taken.append(a) or fused.Fused(*a))
    found = []
    dense = torch.ones_like(x[0])
    off_alignment = torch.ones(dense.numel() + 1, device="cuda").bfloat16()[1:].view(dense.shape)
    for ones in (dense, dense[..., :1, :1].expand_as(dense), off_alignment):
        out = flash_attention(*x, causal=True)
        found.append(torch.autograd.grad(out, x, ones))
        assert len(taken) == 1
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)
