"""Tests that inputs are redrawn for every call, and that results of timed calls are checked."""

import pytest
import torch

from lmperf.attention import problem as attention_problem
from lmperf.attention.library import sdpa
from lmperf.attention.problem import AttentionProblem
from lmperf.attention.reference import attention
from lmperf.attention.tiled import tiled_attention
from lmperf.benchmark import Case, Unsupported, WrongResult
from lmperf.benchmarks import load

PHASES = ("forward", "backward", "forward_backward")
SHAPE = (2, 3, 70, 16)


def problem(dtype="float32", shape=SHAPE, causal=True):
    return AttentionProblem(shape, dtype, causal, "cpu", seed=3)


def call(work, name, seed):
    """The gate (verdict on correctness) of one call, made as the measuring loop makes it."""
    work.freshen(seed)
    phase = work.phases[name]
    return work.check(name, phase.run(phase.before()))


@pytest.mark.parametrize(
    "shape, dtype, causal",
    [
        (SHAPE, "float16", True),
        (SHAPE, "bfloat16", False),
        ((4, 33, 16), "float32", True),
        ((1, 1, 1, 8), "float32", False),
    ],
)
def test_correct_result_passes_the_check_on_fresh_inputs(shape, dtype, causal):
    work = problem(dtype, shape, causal).workload(sdpa, PHASES)
    assert work.gate(PHASES).passed
    for seed, name in enumerate(PHASES):
        gate = call(work, name, seed)
        assert gate.passed, (name, gate.errors, gate.bounds)


def test_fresh_inputs_differ_and_reuse_memory():
    made = problem()
    before = [t.detach().clone() for t in made.inputs]
    places = [t.data_ptr() for t in made.inputs]
    made.fresh.freshen(1)
    assert [t.data_ptr() for t in made.inputs] == places
    assert not any(map(torch.equal, before, made.inputs))
    assert all(t.requires_grad and t.is_leaf for t in made.inputs[:3])


def test_checked_sequences_are_a_new_random_sample(monkeypatch):
    monkeypatch.setitem(attention_problem.CHECKED_SCORES, "cpu", 2 * 70**2)
    made = problem(shape=(4, 8, 70, 16))
    chosen = [tuple(made._chosen()) for _ in range(8)]
    assert {len(few) for few in chosen} == {2} and len(set(chosen)) > 1
    assert problem(shape=(1, 1, 700, 16))._chosen() == [0]


def with_first_maximum(q, k, v, causal):
    """A softmax that subtracts the maximum of the first 16 keys only."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    p = (scores - scores[..., :16].amax(-1, keepdim=True)).exp()
    return p / p.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_softmax_without_its_maximum_fails_the_gate(phase, monkeypatch):
    words = "differs from the float64 reference if the scores are large"
    with pytest.raises(WrongResult, match=words):
        problem().workload(with_first_maximum, PHASES).gate([phase])
    monkeypatch.setattr(AttentionProblem, "_require_large_scores", lambda *_: None)
    assert problem().workload(with_first_maximum, PHASES).gate([phase]).passed


@pytest.mark.parametrize(
    ("function", "tolerance", "shape", "dtype", "causal"),
    [
        (attention, "rounded_scores", (3, 33, 16), "float32", True),
        (attention, "rounded_scores", (1, 2, 131, 32), "bfloat16", False),
        (tiled_attention, "rounded_scores", (1, 1, 260, 80), "float32", False),
        (tiled_attention, "rounded_scores", (3, 33, 16), "bfloat16", True),
        (sdpa, "strict", (1, 2, 131, 32), "float32", True),
        (sdpa, "strict", (1, 2, 32, 16), "bfloat16", False),
        (attention, "rounded_scores", (1, 2, 512, 64), "float16", False),
    ],
)
def test_correct_softmax_passes_the_gate_with_large_scores(
    function, tolerance, shape, dtype, causal
):
    work = problem(dtype, shape, causal).workload(function, PHASES, tolerance=tolerance)
    assert work.gate(PHASES).passed


@pytest.mark.interpreter
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter stands in for a GPU")
@pytest.mark.parametrize("dtype, causal", [("float32", False), ("float16", True)])
def test_triton_passes_the_gate_with_large_scores(dtype, causal):
    pytest.importorskip("triton")
    from lmperf.attention.triton import flash_attention

    made = AttentionProblem((1, 1, 70, 16), dtype, causal, "cpu", seed=3)
    assert made.workload(flash_attention, PHASES).gate(PHASES).passed


@pytest.mark.gpu
@pytest.mark.parametrize(
    "dtype, d, causal",
    [("float32", 64, True), ("tf32", 128, False), ("bfloat16", 128, True), ("float16", 64, False)],
)
@pytest.mark.parametrize(
    "name", ["triton", "sdpa", "sdpa_cudnn", "sdpa_flash", "sdpa_efficient", "flex", "eager"]
)
def test_implementation_passes_the_gate_with_large_scores_on_cuda(name, dtype, d, causal):
    torch._dynamo.reset()  # each case of flex is another compilation, and their number is limited
    benchmark = load("flash_attention")
    cell = {"batch": 1, "heads": 4, "seq_len": 2048, "d_head": d, "dtype": dtype}
    cell |= {"causal": causal, "cuda_graph": False}
    try:
        work = benchmark.prepare(Case(tuple(cell.items()), name), "cuda", 3, {})
    except Unsupported as reason:
        pytest.skip(str(reason))
    for phase in benchmark.phases:
        with work.context():
            assert work.gate([phase]).passed


def test_tf32_shares_inputs_with_float32():
    shared = {}
    arguments = SHAPE, True, "cpu", 3, shared
    full = AttentionProblem.of(SHAPE, "float32", *arguments[1:])
    twin = AttentionProblem.of(SHAPE, "tf32", *arguments[1:])
    assert twin.inputs is full.inputs
    full.fresh.freshen(1)
    assert call(twin.workload(attention, PHASES), "backward", 2).passed


def cached_by_address():
    """Caches outputs by the addresses of the inputs."""
    kept = {}

    def function(q, k, v, causal):
        key = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if key not in kept:
            kept[key] = sdpa(q, k, v, causal).detach()
        return kept[key].clone()

    return function


def cached_by_shape():
    """Caches outputs by the shape of the inputs."""
    kept = {}
    return lambda q, k, v, causal: kept.setdefault(q.shape, sdpa(q, k, v, causal).detach())


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


def gradients_in_forward():
    GradientsInForward.place = None
    return lambda q, k, v, causal: GradientsInForward.apply(q, k, v, causal)


@pytest.mark.parametrize(
    ("cheat", "name"),
    [
        (cached_by_address, "forward"),
        (cached_by_shape, "forward"),
        (gradients_in_forward, "backward"),
    ],
)
def test_cached_result_fails_the_check_on_fresh_inputs(cheat, name, monkeypatch):
    # The second inputs of the gate would find a cache as well.
    monkeypatch.setattr(AttentionProblem, "_require_large_scores", lambda *_: None)
    work = problem().workload(cheat(), [name])
    assert work.gate([name]).passed
    assert not any(call(work, name, seed).passed for seed in range(10, 16))

    unguarded = problem()
    monkeypatch.setattr(unguarded.fresh, "freshen", lambda seed: None)
    monkeypatch.setattr(unguarded.fresh, "freshen_gradient", lambda: None)
    work = unguarded.workload(cheat(), [name])
    assert work.gate([name]).passed
    assert all(call(work, name, seed).passed for seed in range(10, 16))


class Lazy(torch.Tensor):
    """A tensor subclass, which could defer its computation until after the timing."""


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
        (lambda *a, causal: None, "out is a NoneType; it must be a torch.Tensor"),
        (changing, r"the call changed its inputs \(q\); they must stay as they are"),
    ],
)
def test_invalid_result_is_rejected_with_reason(wrong, words):
    work = problem().workload(wrong, ["forward"])
    with pytest.raises(WrongResult, match=words):
        call(work, "forward", 1)
    with pytest.raises(WrongResult, match=words):
        work.gate(["forward"])


def test_failed_gate_reports_pytorch_error():
    work = problem("bfloat16").workload(lambda q, k, v, causal: attention(q, k, v), PHASES)
    gate = work.gate(PHASES)
    assert not gate.passed
    errors = gate.pytorch()
    assert errors.keys() == gate.errors.keys()
    assert all(0 < errors[name] < gate.bounds[name] * 4 for name in errors)
    assert set(call(work, "forward", 2).pytorch()) == {"out"}
