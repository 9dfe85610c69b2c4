"""Fresh inputs for every call, and the check of what timed calls returned."""

import pytest
import torch

from lmperf.attention import problem as attention_problem
from lmperf.attention.library import sdpa
from lmperf.attention.problem import AttentionProblem
from lmperf.attention.reference import attention
from lmperf.benchmark import WrongResult

PHASES = ("forward", "backward", "forward_backward")
SHAPE = (2, 3, 70, 16)


def problem(dtype="float32", shape=SHAPE, causal=True):
    return AttentionProblem(shape, dtype, causal, "cpu", seed=3)


def call(work, name, seed):
    """A call as the core makes it, and its check."""
    work.freshen(seed)
    phase = work.phases[name]
    return work.check(name, phase.run(phase.before()))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [SHAPE, (4, 33, 16), (1, 1, 1, 8)])
def test_what_is_right_passes_on_every_fresh_input(shape, dtype, causal):
    work = problem(dtype, shape, causal).workload(sdpa, PHASES)
    assert work.gate(PHASES).passed
    for seed in range(3):
        for name in PHASES:
            gate = call(work, name, seed)
            assert gate.passed, (name, gate.errors, gate.bounds)


def test_fresh_inputs_are_others_in_the_same_memory():
    made = problem()
    before = [t.detach().clone() for t in made.inputs]
    places = [t.data_ptr() for t in made.inputs]
    made.fresh.freshen(1)
    assert [t.data_ptr() for t in made.inputs] == places
    assert not any(map(torch.equal, before, made.inputs))
    assert all(t.requires_grad and t.is_leaf for t in made.inputs[:3])


def test_a_seed_gives_the_same_inputs_again():
    one, other = problem(), problem()
    for made, first in ((one, 7), (other, 8)):
        made.fresh.freshen(first)
        made.fresh.freshen(9)
    assert all(map(torch.equal, one.inputs, other.inputs))


def test_of_many_sequences_another_few_are_checked_each_time(monkeypatch):
    monkeypatch.setitem(attention_problem.CHECKED_SCORES, "cpu", 2 * 70**2)
    made = problem(shape=(4, 8, 70, 16))
    chosen = [tuple(made._chosen()) for _ in range(8)]
    assert {len(few) for few in chosen} == {2} and len(set(chosen)) > 1
    assert problem(shape=(1, 1, 700, 16))._chosen() == [0]


def test_no_gradient_of_the_output_is_what_it_was_during_the_forward():
    made = problem(shape=(1, 1, 5, 4))
    for seed in range(20):
        made.fresh.freshen(seed)
        during = made.inputs[3].clone()
        made.fresh.freshen_gradient()
        assert not torch.equal(during, made.inputs[3])


def test_a_twin_in_tf32_shares_inputs_and_what_is_fresh_of_them():
    shared = {}
    arguments = SHAPE, True, "cpu", 3, shared
    full = AttentionProblem.of(SHAPE, "float32", *arguments[1:])
    twin = AttentionProblem.of(SHAPE, "tf32", *arguments[1:])
    assert twin.inputs is full.inputs
    full.fresh.freshen(1)
    assert call(twin.workload(attention, PHASES), "backward", 2).passed


def by_address():
    """Keeps each output by the address of its inputs."""
    kept = {}

    def function(q, k, v, causal):
        key = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if key not in kept:
            kept[key] = sdpa(q, k, v, causal).detach()
        return kept[key].clone()

    return function


def by_shape():
    """Keeps each output by the shape of its inputs."""
    kept = {}
    return lambda q, k, v, causal: kept.setdefault(q.shape, sdpa(q, k, v, causal).detach())


def by_seed():
    """Holds the answer for the draw of this seed."""
    q, k, v, _ = problem().inputs
    answer = sdpa(q, k, v, True)
    return lambda q, k, v, causal: answer.clone()


class InForward(torch.autograd.Function):
    """Works the backward out in the forward, with the output's gradient where it last was."""

    place = None

    @staticmethod
    def forward(ctx, q, k, v, causal):
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        with torch.enable_grad():
            out = sdpa(*leaves, causal)
        ctx.leaves, ctx.out, ctx.gradients = leaves, out, None
        if InForward.place is not None:
            ctx.gradients = torch.autograd.grad(out, leaves, InForward.place)
        return out.detach().clone()

    @staticmethod
    def backward(ctx, gradient):
        InForward.place = gradient
        if ctx.gradients is None:
            ctx.gradients = torch.autograd.grad(ctx.out, ctx.leaves, gradient)
        return *ctx.gradients, None


def in_forward():
    InForward.place = None
    return lambda q, k, v, causal: InForward.apply(q, k, v, causal)


@pytest.mark.parametrize(
    ("cheat", "name"),
    [
        (by_address, "forward"),
        (by_shape, "forward"),
        (by_seed, "forward"),
        (in_forward, "backward"),
    ],
)
def test_what_a_call_did_not_work_out_is_wrong_because_inputs_are_fresh(cheat, name, monkeypatch):
    work = problem().workload(cheat(), [name])
    assert work.gate([name]).passed
    assert not any(call(work, name, seed).passed for seed in range(10, 16))

    unguarded = problem()
    monkeypatch.setattr(unguarded.fresh, "freshen", lambda seed: None)
    monkeypatch.setattr(unguarded.fresh, "freshen_gradient", lambda: None)
    work = unguarded.workload(cheat(), [name])
    assert work.gate([name]).passed
    assert all(call(work, name, seed).passed for seed in range(10, 16))


def test_a_backward_in_the_forward_is_wrong_because_the_gradient_comes_after_it(monkeypatch):
    unguarded = problem()
    after = unguarded.fresh.freshen_gradient
    work = unguarded.workload(in_forward(), ["backward"])
    assert work.gate(["backward"]).passed
    work.freshen(1)
    monkeypatch.setattr(unguarded.fresh, "freshen_gradient", lambda: None)
    phase = work.phases["backward"]
    assert work.check("backward", phase.run(phase.before())).passed
    monkeypatch.setattr(unguarded.fresh, "freshen_gradient", after)
    assert not work.check("backward", phase.run(phase.before())).passed


class Lazy(torch.Tensor):
    """A subclass, which could compute what it holds outside the clock."""


def changing(q, k, v, causal):
    out = sdpa(q, k, v, causal)
    q.detach()[0, 0, 0, 0] += 1
    return out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda *a, causal: sdpa(*a, causal).as_subclass(Lazy), "out is a Lazy; it must be a"),
        (lambda *a, causal: sdpa(*(t.double() for t in a), causal), "the dtype torch.float64; it"),
        (lambda *a, causal: sdpa(*a, causal)[..., :8], r"the shape \(2, 3, 70, 8\); it must be"),
        (lambda *a, causal: sdpa(*a, causal).to("meta"), "out has the device meta; it must be cpu"),
        (lambda *a, causal: (sdpa(*a, causal),), "out is a tuple; it must be a torch.Tensor"),
        (lambda *a, causal: None, "out is a NoneType; it must be a torch.Tensor"),
        (changing, r"the call changed its inputs \(q\); they must stay as they are"),
    ],
)
def test_what_is_no_result_is_refused_in_words(wrong, words):
    work = problem().workload(wrong, ["forward"])
    with pytest.raises(WrongResult, match=words):
        call(work, "forward", 1)
    with pytest.raises(WrongResult, match=words):
        work.gate(["forward"])


def test_another_number_of_gradients_is_refused():
    work = problem().workload(sdpa, ["backward"])
    with pytest.raises(WrongResult, match=r"returned 1; it must be 3 tensors \(dq, dk, dv\)"):
        work.check("backward", (torch.zeros(SHAPE),))


def test_beside_a_red_gate_stands_the_error_of_pytorch_on_the_same_inputs():
    work = problem("bfloat16").workload(lambda q, k, v, causal: attention(q, k, v), PHASES)
    gate = work.gate(PHASES)
    assert not gate.passed
    errors = gate.pytorch()
    assert errors.keys() == gate.errors.keys()
    assert all(0 < errors[name] < gate.bounds[name] * 4 for name in errors)
    assert set(call(work, "forward", 2).pytorch()) == {"out"}


def test_the_error_of_pytorch_is_that_of_sdpa_where_the_scores_do_not_fit(monkeypatch):
    made = problem("bfloat16")
    gate = made.workload(sdpa, PHASES).gate(PHASES)
    assert gate.pytorch() != gate.errors
    monkeypatch.setattr("lmperf.attention.pytorch.MOST_SCORES", 0)
    assert gate.pytorch()["out"] == gate.errors["out"]
