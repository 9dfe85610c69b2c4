"""Attention whose backward runs under `torch.use_deterministic_algorithms`."""

import torch

from lmperf.attention import deterministic
from lmperf.attention.reference import attention


class Seen(torch.autograd.Function):
    """The identity, whose backward notes the modes of PyTorch."""

    found: list[tuple[bool, bool]] = []

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        Seen.found.append(modes())
        return grad


def modes() -> tuple[bool, bool]:
    """Whether PyTorch's algorithms are deterministic, and whether it then fills new tensors."""
    fills = torch.utils.deterministic.fill_uninitialized_memory
    return torch.are_deterministic_algorithms_enabled(), fills


def test_backward_alone_is_deterministic(monkeypatch):
    monkeypatch.setattr(
        deterministic, "flash_attention", lambda *inputs: Seen.apply(attention(*inputs))
    )
    q, k, v = (torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3))
    out = deterministic.deterministic_attention(q, k, v, True)
    grad = torch.randn_like(out)
    gradients = [torch.autograd.grad(out, (q, k, v), grad, retain_graph=True) for _ in range(2)]
    assert Seen.found == [(True, False)] * 2 and modes() == (False, True)
    expected = torch.autograd.grad(attention(q, k, v, True), (q, k, v), grad)
    for got in gradients:
        torch.testing.assert_close(got, expected)
