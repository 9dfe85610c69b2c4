"""The ladder: each rung computes the same step, and a wrong one is found out."""

from functools import partial

import pytest
import torch

from lmperf.benchmark import WrongResult
from lmperf.benchmarks import load
from lmperf.names import RUNGS
from lmperf.transformer import fused_loss, ladder, sizes
from lmperf.transformer.compiled_adamw import CompiledAdamW
from lmperf.transformer.fused_loss import linear_cross_entropy
from lmperf.transformer.graphed import Graphed
from lmperf.transformer.model import cross_entropy, twin_of
from lmperf.transformer.problem import ModelProblem
from lmperf.transformer.sizes import ModelSize
from lmperf.transformer.training_loss import losses, token_stream


@pytest.fixture(autouse=True)
def eagerly(monkeypatch):
    """What compilers make of it is not asked here, and takes them half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setitem(sizes.SIZES, "for tests", ModelSize(64, 128, 2, 4))
    fused_loss._loss_and_gradient.cache_clear()
    yield
    fused_loss._loss_and_gradient.cache_clear()


def problem_of(name: str, device: str = "cpu") -> ModelProblem:
    return ModelProblem("for tests", 32, 2, device, 0, prepare=ladder.rung(name).prepare)


def step_of(name: str, problem: ModelProblem):
    model = twin_of(problem.model)
    return ladder.rung(name).step(model, problem.optimizer, problem.tokens, problem.targets)


CPU_RUNGS = [name for name in RUNGS if name not in ("flash_attention", "graph")]


@pytest.mark.parametrize("name", CPU_RUNGS)
def test_a_rung_passes_its_gate_and_its_timed_calls_are_checked(name):
    problem, dtype = problem_of(name), RUNGS[name]
    step = step_of(name, problem)
    gate = problem.gate_run(step, dtype)
    assert gate.passed and set(gate.errors) == {"loss", "gradient", "gain"}
    problem.freshen(7)
    assert problem.check(dtype, "train_step", problem.step_phase(step).run(None)).passed


def test_bf16_weights_are_held_to_a_reference_with_the_same_weights_and_moments_are_bf16():
    problem = problem_of("bf16_weights")
    assert {p.dtype for p in problem.model.parameters()} == {torch.bfloat16}
    assert problem.model.blocks[0].attention.rotary.cos.dtype == torch.float32
    problem.gate_run(step_of("bf16_weights", problem), "bfloat16")
    moments = [state["exp_avg"].dtype for state in problem.optimizer.state.values()]
    assert set(moments) == {torch.bfloat16}
    exact = problem._reference["loss"]
    assert exact.dtype == torch.float64
    with torch.no_grad(), problem._gate_tokens():
        twin = twin_of(problem.model)
        own = cross_entropy(twin.double()(problem.tokens), problem.targets)
    assert float(exact) == pytest.approx(float(own), rel=1e-12)


@pytest.mark.parametrize("name", ["fused_loss", "bf16_weights"])
@pytest.mark.parametrize("off", [0.98, 1.02])
def test_a_gradient_that_is_a_little_off_is_red(name, off):
    problem, dtype = problem_of(name), RUNGS[name]
    problem._limits(dtype)  # before PyTorch's side has the fault as well
    problem.model.head.weight.register_hook(lambda gradient: off * gradient)
    assert not problem.gate_run(step_of(name, problem), dtype).passed


def test_a_chunk_that_is_left_out_is_red(monkeypatch):
    monkeypatch.setattr(fused_loss, "CHUNK", 16)
    right, calls = fused_loss._softmax_loss, []

    def wrong(logits, targets, share):
        calls.append(None)
        return right(logits, targets, 0.0 if len(calls) == 2 else share)

    monkeypatch.setattr(fused_loss, "_softmax_loss", wrong)
    problem = problem_of("fused_loss")
    assert not problem.gate_run(step_of("fused_loss", problem), "autocast_bfloat16").passed


def test_a_step_without_its_optimizer_is_refused():
    problem = problem_of("float32")
    step = step_of("float32", problem)
    problem.optimizer.step = lambda: None
    with pytest.raises(WrongResult, match="did not step"):
        problem.gate_run(step, "float32")


@pytest.mark.parametrize("name", ["float32", "bf16_weights"])
@pytest.mark.parametrize("moment", ["exp_avg", "exp_avg_sq"])
def test_a_moment_that_is_not_updated_is_refused(name, moment):
    problem = problem_of(name)
    step = step_of(name, problem)
    problem.step_phase(step).run(None)
    assert problem.gate_run(step, RUNGS[name]).passed
    real = problem.optimizer.step

    def forgetful():
        states = [problem.optimizer.state[p] for p in problem.model.parameters()]
        old = [state[moment].clone() for state in states]
        real()
        for state, kept in zip(states, old, strict=True):
            state[moment].copy_(kept)

    problem.optimizer.step = forgetful
    with pytest.raises(WrongResult, match=f"did not update {moment} of"):
        problem.gate_run(step, RUNGS[name])


@pytest.mark.parametrize("chunk", [7, 64, 1000])
def test_loss_in_chunks_is_the_loss_with_its_gradients(monkeypatch, chunk):
    monkeypatch.setattr(fused_loss, "CHUNK", chunk)
    torch.manual_seed(0)
    hidden = torch.randn(2, 32, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(50, (2, 32))
    expected = cross_entropy(hidden @ weight.T, targets)
    got = linear_cross_entropy(hidden, weight, targets)
    torch.testing.assert_close(got, expected)
    of = partial(torch.autograd.grad, inputs=(hidden, weight))
    torch.testing.assert_close(of(3 * got), of(3 * expected))


def test_loss_in_chunks_sums_gradients_in_float32(monkeypatch):
    monkeypatch.setattr(fused_loss, "CHUNK", 8)
    torch.manual_seed(0)
    hidden = torch.randn(1, 512, 16).bfloat16()
    weight = torch.randn(50, 16).bfloat16().requires_grad_()
    targets = torch.randint(50, (1, 512))
    exact = weight.detach().double().requires_grad_()
    cross_entropy(hidden.double() @ exact.T, targets).backward()
    linear_cross_entropy(hidden, weight, targets).backward()
    off = (weight.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert weight.grad.dtype == torch.bfloat16 and off < 2**-8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_optimizer_is_adamw(dtype, device="cpu"):
    torch.manual_seed(0)
    shapes = ((7, 5), (3,))
    ours = [torch.randn(s, dtype=dtype, device=device).requires_grad_() for s in shapes]
    theirs = [parameter.detach().clone().requires_grad_() for parameter in ours]
    optimizers = CompiledAdamW(ours, lr=1e-2), torch.optim.AdamW(theirs, lr=1e-2, fused=True)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.01, "atol": 0}
    torch.testing.assert_close(ours, theirs, **close)
    mine, other = (
        [o.state[p][m] for p in o.param_groups[0]["params"] for m in ("exp_avg", "exp_avg_sq")]
        for o in optimizers
    )
    torch.testing.assert_close(mine, other, rtol=4 * close["rtol"], atol=close["rtol"])
    assert {int(state["step"]) for state in optimizers[0].state.values()} == {5}


def test_tokens_are_the_same_every_time_and_can_be_learnt():
    stream = token_stream(20, 33, seed=3)
    assert torch.equal(stream, token_stream(20, 33, seed=3))
    assert not torch.equal(stream, token_stream(20, 33, seed=4))
    assert int(stream.min()) >= 0 and int(stream.max()) < sizes.VOCAB_SIZE
    found = losses("float32", "for tests", 16, 4, "cpu", 0, steps=30, learning_rate=1e-2)
    assert found[0] == pytest.approx(9.2, abs=0.3) and found[-1] < found[0] - 2


def test_rungs_train_alike_on_the_same_tokens():
    found = {
        name: losses(name, "for tests", 16, 2, "cpu", 0, steps=6, learning_rate=1e-3)
        for name in ("float32", "fused_loss", "bf16_weights")
    }
    for series in found.values():
        assert series == pytest.approx(found["float32"], rel=0.02)


def test_a_processor_has_the_rungs_that_it_can_run(monkeypatch):
    names = {case.implementation for case in load("ladder").cases("cpu")}
    assert names <= set(CPU_RUNGS) and {"float32", "bf16_weights"} <= names


@pytest.mark.gpu
def test_the_optimizer_as_it_is_compiled_is_adamw(monkeypatch):
    monkeypatch.undo()
    test_the_compiled_optimizer_is_adamw(torch.bfloat16, "cuda")


@pytest.mark.gpu
def test_a_graph_follows_its_tokens_and_counts_its_steps():
    problem = problem_of("graph", "cuda")
    step = step_of("graph", problem)
    assert isinstance(step, Graphed)
    phase = problem.step_phase(step)
    for seed in (5, 6, 7):
        problem.freshen(seed)
        assert problem.check("bfloat16", "train_step", phase.run(None).clone()).passed
    assert problem.gate_run(step, "bfloat16").passed and step.pool_mib > 0
    stale = phase.run(None).clone()
    problem.freshen(9)
    assert not problem.check("bfloat16", "train_step", stale).passed
