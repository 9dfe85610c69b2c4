"""Tests that inputs are redrawn for every call, and that results of timed calls are checked."""

import pytest
import torch

from lmperf.attention import problem as attention_problem
from lmperf.attention.library import sdpa
from lmperf.attention.problem import AttentionProblem
from lmperf.attention.reference import attention
from lmperf.attention.tiled import tiled_attention
from lmperf.benchmark import WrongResult

PHASES = ("forward", "backward", "forward_backward")
SHAPE = (2, 3, 70, 16)


def problem(dtype="float32", shape=SHAPE, causal=True):
    return AttentionProblem(shape, dtype, causal, "cpu", seed=3)


def call(work, name, seed):
    """The gate (verdict on correctness) of one call, made as the measuring loop makes it."""
    work.freshen(seed)
    phase = work.phases[name]
    return work.check(name, phase.run(phase.before()))


def test_checked_sequences_are_a_new_random_sample(monkeypatch):
    monkeypatch.setitem(attention_problem.CHECKED_SCORES, "cpu", 2 * 70**2)
    made = problem(shape=(4, 8, 70, 16))
    chosen = [tuple(made._chosen()) for _ in range(8)]
    assert {len(few) for few in chosen} == {2} and len(set(chosen)) > 1
    assert problem(shape=(1, 1, 700, 16))._chosen() == [0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "tolerance", "shape", "dtype", "causal"),
    [
        (attention, "rounded_scores", (3, 33, 16), "float32", True),
        (attention, "rounded_scores", (1, 2, 70, 16), "bfloat16", False),
        (attention, "rounded_scores", (1, 1, 70, 32), "float16", False),
        (tiled_attention, "rounded_scores", (1, 1, 260, 80), "float32", False),
        (sdpa, "strict", SHAPE, "float16", True),
        (sdpa, "strict", (1, 2, 32, 16), "bfloat16", False),
        (sdpa, "strict", (1, 1, 1, 8), "float32", False),
    ],
)
def test_correct_result_passes_the_gate_and_the_checks(function, tolerance, shape, dtype, causal):
    work = problem(dtype, shape, causal).workload(function, PHASES, tolerance=tolerance)
    assert work.gate(PHASES).passed
    for seed, name in enumerate(PHASES):
        gate = call(work, name, seed)
        assert gate.passed, (name, gate.errors, gate.bounds)


@pytest.mark.interpreter
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter stands in for a GPU")
def test_triton_passes_the_gate_with_large_scores():
    from lmperf.attention.triton import flash_attention

    work = problem("float16", (1, 1, 40, 16)).workload(flash_attention, PHASES)
    assert work.gate(PHASES).passed


def test_tf32_shares_inputs_with_float32():
    shared = {}
    arguments = SHAPE, True, "cpu", 3, shared
    full = AttentionProblem.of(SHAPE, "float32", *arguments[1:])
    twin = AttentionProblem.of(SHAPE, "tf32", *arguments[1:])
    assert twin.inputs is full.inputs
    full.fresh.freshen(1)
    assert call(twin.workload(attention, PHASES), "backward", 2).passed


class GradientsInForward(torch.autograd.Function):
    """Computes gradients in the forward pass, from the memory that held dO at the last call."""

    place = None

    @staticmethod
    def forward(ctx, q, k, v, causal):
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        with torch.enable_grad():
            out = sdpa(*leaves, causal)
        ctx.leaves, ctx.out, ctx.gradients = leaves, out, None
        if GradientsInForward.place is not None:
            ctx.gradients = torch.autograd.grad(out, leaves, GradientsInForward.place)
        return out.detach().clone()

    @staticmethod
    def backward(ctx, gradient):
        GradientsInForward.place = gradient
        if ctx.gradients is None:
            ctx.gradients = torch.autograd.grad(ctx.out, ctx.leaves, gradient)
        return *ctx.gradients, None


@pytest.mark.slow
def test_gradients_computed_in_forward_fail_on_fresh_inputs(monkeypatch):
    # The second inputs of the gate would find them as well.
    monkeypatch.setattr(AttentionProblem, "_require_large_scores", lambda *_: None)
    monkeypatch.setattr(GradientsInForward, "place", None)
    work = problem().workload(
        lambda q, k, v, causal: GradientsInForward.apply(q, k, v, causal), ["backward"]
    )
    assert work.gate(["backward"]).passed
    assert not any(call(work, "backward", seed).passed for seed in range(10, 16))


class Lazy(torch.Tensor):
    """A tensor subclass, which could defer its computation until after the timing."""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda *a, causal: sdpa(*a, causal).as_subclass(Lazy), "out is a Lazy; it must be a"),
        (lambda *a, causal: sdpa(*(t.double() for t in a), causal), "the dtype torch.float64; it"),
        (lambda *a, causal: sdpa(*a, causal)[..., :8], r"the shape \(2, 3, 70, 8\); it must be"),
        (lambda *a, causal: sdpa(*a, causal).to("meta"), "out has the device meta; it must be cpu"),
    ],
)
def test_invalid_result_is_rejected_with_reason(wrong, words):
    work = problem().workload(wrong, ["forward"])
    with pytest.raises(WrongResult, match=words):
        call(work, "forward", 1)
    with pytest.raises(WrongResult, match=words):
        work.gate(["forward"])
