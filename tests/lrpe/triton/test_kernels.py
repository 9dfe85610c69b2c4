"""The Triton kernels of md_lrpe_cosine against the definition and its properties."""

from functools import partial

import pytest
import torch

from lmperf.benchmarks.flash_attention_check import uninitialised_memory_is_nan
from lmperf.lrpe.accuracy import FLOAT32
from lmperf.lrpe.problem import LrpeProblem
from lmperf.lrpe.reference import cosines_float64
from lmperf.lrpe.triton import kernels, launch, lrpe_cosine
from lmperf.lrpe.triton.launch import Configuration

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def strict_memory():
    with uninitialised_memory_is_nan():
        yield


@pytest.mark.parametrize(
    ("shape", "d", "extra_tokens", "cache_angles", "dtype"),
    [
        ((1,), 1, 0, True, "float16"),
        ((37,), 16, 0, False, "float32"),
        ((20,), 128, 10, True, "float32"),
        ((3, 5), 40, 1, False, "float16"),
        ((2, 3, 4), 24, 0, True, "float16"),
        ((2, 3, 2, 3), 10, 3, False, "float32"),
        ((2, 1, 2, 2, 3), 3, 0, True, "float32"),
    ],
)
def test_kernels_pass_the_gate(shape, d, extra_tokens, cache_angles, dtype):
    problem = LrpeProblem(2, 2, shape, d, extra_tokens, dtype, DEVICE, seed=3)
    gate = problem.gate(partial(lrpe_cosine, cache_angles=cache_angles), ("forward", "backward"))
    assert gate.passed, (gate.errors, gate.bounds)


def test_large_angles_are_accurate():
    theta = torch.tensor([[1.0, -3.7, 1e4, 1e-6, 6.2831855, 0.5, 2.0**-20, 0.0]], device=DEVICE)
    ones, shape = torch.ones(1, 1, 65536, 8, device=DEVICE), (65536,)
    out, _ = kernels.forward(ones, theta, shape, 0, False, Configuration(8192))
    expected = torch.cat(cosines_float64(theta, shape, 8, 0), dim=-1)
    assert (out[0].double() - expected).abs().max() <= 3 * FLOAT32


def test_non_finite_theta_gives_nan():
    theta = torch.tensor([[float("inf"), float("nan"), 1.0]], device=DEVICE)
    out = lrpe_cosine(torch.ones(1, 1, 4, 3, device=DEVICE), theta, (4,))
    assert torch.equal(out.isnan()[0, 0, 1], torch.tensor([1, 1, 0] * 2, device=DEVICE).bool())


def test_theta_may_be_wider_and_of_another_dtype():
    theta = torch.rand(2, 7, device=DEVICE).half()
    x = torch.randn(1, 2, 12, 10, device=DEVICE)
    cosine, sine = cosines_float64(theta, (3, 4), 10, 0)
    expected = torch.cat([x * cosine, x * sine], dim=-1).float()
    torch.testing.assert_close(lrpe_cosine(x, theta, (3, 4)), expected)


@pytest.mark.parametrize("block_t, sms", [(4, 1), (8, 100), (64, 100)])
def test_batch_splits_do_not_change_a_bit_of_the_result(block_t, sms, monkeypatch):
    x, theta = torch.randn(5, 2, 21, 16, device=DEVICE), torch.rand(2, 8, device=DEVICE)
    out, angles = kernels.forward(x, theta, (3, 7), 0, True)
    monkeypatch.setattr(launch, "_sms", lambda index: sms)
    chosen = Configuration(block_t)
    again, same = kernels.forward(x, theta, (3, 7), 0, True, chosen)
    assert torch.equal(out, again) and torch.equal(angles, same)
    dx = kernels.backward(out, theta, None, (3, 7), 0)
    assert torch.equal(dx, kernels.backward(out, None, angles, (3, 7), 0, chosen))


@pytest.mark.gpu
def test_new_length_does_not_recompile():
    def run(batch, heads, shape, extra_tokens, d):
        tokens = extra_tokens + torch.Size(shape).numel()
        x = torch.randn(batch, tokens, heads, d, device=DEVICE, dtype=torch.bfloat16)
        theta = torch.rand(heads, d, device=DEVICE)
        for view in (x.transpose(1, 2), x.transpose(1, 2).contiguous()):
            out = lrpe_cosine(view.requires_grad_(), theta, shape, extra_tokens)
            torch.autograd.grad(out, view, torch.ones_like(out))

    def compiled():
        return [len(kernel.device_caches[0][0]) for kernel in _KERNELS]

    _KERNELS = (kernels.forward_kernel, kernels.backward_kernel)
    for d in (128, 40):
        run(2, 3, (16, 16), 0, d)
        before = compiled()
        for shape in [(1, 1), (1, 31), (17, 1), (5, 7), (64, 32)]:
            for extra_tokens in (0, 1, 10, 16):
                run(1, 1, shape, extra_tokens, d)
                run(4, 5, shape, extra_tokens, d)
        assert compiled() == before


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_supported():
    theta = torch.rand(12, 128, device=DEVICE)
    x = torch.randn(12, 12, 65536, 128, device=DEVICE, dtype=torch.bfloat16)
    last = x[-1:, -1:].clone().requires_grad_()
    whole = x.requires_grad_()
    out = lrpe_cosine(whole, theta, (65536,))
    assert out.numel() > 2**31
    single = lrpe_cosine(last, theta[-1:], (65536,))
    assert torch.equal(out[-1:, -1:], single)
    (dx,) = torch.autograd.grad(out, whole, out.detach())
    (dlast,) = torch.autograd.grad(single, last, single.detach())
    assert torch.equal(dx[-1:, -1:], dlast)
