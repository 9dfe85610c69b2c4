import pytest
import torch

from lmperf.attention.problem import AttentionProblem
from lmperf.attention.reference import attention
from lmperf.benchmark import WrongResult
from lmperf.own.attention import Fitted

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
    function = Fitted(given)
    for _ in range(2):
        out = function(q, k, v, causal=True)
        expected = attention(q, k, v, True)
        torch.testing.assert_close(out, expected)
        gradient = torch.randn_like(out)
        got = torch.autograd.grad(out, (q, k, v), gradient)
        torch.testing.assert_close(got, torch.autograd.grad(expected, (q, k, v), gradient))
    assert calls == CALLS, "the second call must not try both layouts again"


class WrongWithHeads(torch.autograd.Function):
    """Right for three dimensions; with heads, sums of rows are taken along another axis."""

    raises = False

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        weights = attention_weights(q, k, is_causal)
        out = weights @ v
        ctx.save_for_backward(q, k, v, weights)
        return out

    @classmethod
    def backward(cls, ctx, gradient):
        q, k, v, weights = ctx.saved_tensors
        if cls.raises and q.ndim == 4:
            raise ValueError("not with heads")
        inner = gradient @ v.mT
        sums = (weights * inner).sum(-1)[:, :, None]
        inner = weights * (inner - sums) / q.shape[-1] ** 0.5
        return inner @ k, inner.mT @ q, weights.mT @ gradient, None


class RaisesWithHeads(WrongWithHeads):
    raises = True


def attention_weights(q, k, causal):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores + torch.full_like(scores, -torch.inf).triu(1)
    return scores.softmax(-1)


@pytest.mark.parametrize("given", [WrongWithHeads, RaisesWithHeads])
def test_what_is_right_without_heads_only_passes_in_three_dimensions(given):
    problem = AttentionProblem((1, 1, 16, 16), "float32", True, "cpu", seed=0)
    work = problem.workload(Fitted(given), ["forward", "backward"])
    for phase in work.phases.values():
        phase.run(phase.before())
    assert work.gate([*work.phases]).passed
    phase = work.phases["backward"]
    assert work.check("backward", phase.run(phase.before())).passed


def test_what_is_wrong_in_both_layouts_fails_as_in_the_first():
    def wrong(q, k, v, causal):
        return attention(q, k, v, causal) * (1.1 if q.ndim == 4 else 1.2)

    problem = AttentionProblem((1, 2, 16, 16), "float32", True, "cpu", seed=0)
    gate = problem.workload(function := Fitted(wrong), ["forward"]).gate(["forward"])
    assert gate.errors["out"] == pytest.approx(0.1, rel=0.01)
    q = torch.randn(1, 2, 16, 16)
    torch.testing.assert_close(function(q, q, q, True), attention(q, q, q, True) * 1.1)


def test_plain_bf16_attention_is_told_which_tolerance_to_declare():
    def plain(q, k, v, causal):
        return attention_weights(q, k, causal) @ v

    problem = AttentionProblem((1, 256, 64), "bfloat16", True, "cpu", seed=0)
    strict, declared = (
        problem.workload(Fitted(plain), ["forward"], tolerance=tolerance).gate
        for tolerance in ("strict", "rounded_scores")
    )
    assert declared(["forward"]).passed
    try:
        reason = strict(["forward"]).columns.get("reason")
    except WrongResult as error:
        reason = str(error)
    assert reason.endswith("as plain PyTorch does, declare tolerance: rounded_scores")


def test_unsupported_layout_keeps_original_error():
    def raises(q, k, v, causal):
        raise ValueError(f"not for {q.ndim} dimensions")

    q = torch.randn(2, 3, 8, 16)
    function = Fitted(raises)
    with pytest.raises(ValueError, match="not for 4 dimensions"):
        function(q, q, q, causal=True)
    assert Fitted(lambda q, k, v, causal: None)(q, q, q) is None
    assert Fitted(lambda q, k, v, causal: q.sum())(q, q, q).shape == ()
