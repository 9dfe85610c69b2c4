import pytest
import torch

from lmperf.attention.custom import fitted
from lmperf.attention.reference import attention

CALLS = []


def any_dimensions(q, k, v, causal):
    CALLS.append(q.ndim)
    return attention(q, k, v, causal)


def three_dimensions(q, k, v, causal=False):
    CALLS.append(q.ndim)
    _, _, _ = q.shape
    return attention(q, k, v, causal)


def four_dimensions(q, k, v, causal=False):
    CALLS.append(q.ndim)
    _, _, _, _ = q.shape
    return attention(q, k, v, causal)


class CourseAttention(torch.autograd.Function):
    """An attention as courses ask for: three-dimensional inputs, its own backward pass."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        _, _, _ = q.shape
        ctx.save_for_backward(q, k, v)
        ctx.is_causal = is_causal
        return attention(q, k, v, is_causal)

    @staticmethod
    def backward(ctx, gradient):
        leaves = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            out = attention(*leaves, ctx.is_causal)
        return *torch.autograd.grad(out, leaves, gradient), None


@pytest.mark.parametrize(
    ("given", "shape", "calls"),
    [
        (any_dimensions, (2, 8, 16), [3, 3]),
        (any_dimensions, (2, 3, 8, 16), [4, 4]),
        (three_dimensions, (2, 3, 8, 16), [4, 3, 3]),
        (four_dimensions, (2, 8, 16), [3, 4, 4]),
        (CourseAttention, (2, 3, 8, 16), []),
    ],
)
def test_custom_attention_gets_inputs_of_the_rank_it_takes(given, shape, calls):
    CALLS.clear()
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    function = fitted(given)
    for _ in range(2):
        out = function(q, k, v, causal=True)
        expected = attention(q, k, v, True)
        torch.testing.assert_close(out, expected)
        gradient = torch.randn_like(out)
        got = torch.autograd.grad(out, (q, k, v), gradient)
        torch.testing.assert_close(got, torch.autograd.grad(expected, (q, k, v), gradient))
    assert calls == CALLS, "the second call must not try both layouts again"


def test_unsupported_layout_keeps_original_error():
    def raises(q, k, v, causal):
        raise ValueError(f"not for {q.ndim} dimensions")

    q = torch.randn(2, 3, 8, 16)
    function = fitted(raises)
    with pytest.raises(ValueError, match="not for 4 dimensions"):
        function(q, q, q, causal=True)
    assert fitted(lambda q, k, v, causal: None)(q, q, q) is None
    assert fitted(lambda q, k, v, causal: q.sum())(q, q, q).shape == ()
