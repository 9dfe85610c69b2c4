"""Rungs (train steps of the ladder): correct ones pass the gate, and wrong ones fail it."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from lmperf.benchmark import Unsupported, WrongResult
from lmperf.benchmarks import load
from lmperf.measuring.out_of_memory import out_of_memory
from lmperf.names import IMPLEMENTATIONS
from lmperf.transformer import fused_adamw, fused_loss, sizes
from lmperf.transformer.fused_adamw import FusedAdamW
from lmperf.transformer.fused_loss import linear_cross_entropy
from lmperf.transformer.graphed import Graphed, first_cause
from lmperf.transformer.model import cross_entropy, twin_of
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.rungs import RUNGS, Rung
from lmperf.transformer.steps import (
    FUSED_GRAPH,
    GRAPH,
    SDPA_COPIES_GRAPH,
    SDPA_GRAPH,
    STORED_LOGITS_GRAPH,
    StepMaker,
    step_maker,
)
from lmperf.transformer.training_loss import losses, token_stream


@pytest.fixture(autouse=True)
def without_compiler(small_models, monkeypatch):
    """Replace torch.compile by a function that returns its argument, to save half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def rung_of(name: str) -> Rung:
    return next(rung for rung in RUNGS if rung.name == name)


def maker_of(name: str) -> StepMaker:
    return step_maker(load("end_to_end").callable_of(rung_of(name).implementation))


def problem_of(name: str, device: str = "cpu") -> ModelProblem:
    prepare = maker_of(name).prepare(rung_of(name).dtype)
    return ModelProblem("for tests", 32, 2, device, 0, prepare=prepare)


def step_of(name: str, problem: ModelProblem):
    model, dtype = twin_of(problem.model), rung_of(name).dtype
    return maker_of(name).step(model, problem.optimizer, problem.tokens, problem.targets, dtype)


def test_every_rung_has_words():
    assert {rung.name for rung in RUNGS} <= {*IMPLEMENTATIONS}


def test_ladder_cells_have_a_train_step_alone():
    benchmark = load("end_to_end")
    alone = {c for c in benchmark.cases("gpu") if benchmark.phases_of(c) == ("train_step",)}
    names = {(c.axes["dtype"], c.implementation) for c in alone}
    assert {("bfloat16", "graph"), ("tf32", "eager"), ("autocast_bfloat16", "fused_loss")} <= names
    assert all(c.axes["context_length"] == 1024 for c in alone)
    whole = next(case for case in benchmark.cases("gpu") if case.axes["context_length"] == 256)
    assert benchmark.phases_of(whole) == benchmark.phases
    benchmark.phases = ("forward",)
    assert {benchmark.phases_of(case) for case in alone} == {()}


def uncaptured(implementation: str, dtype: str = "autocast_bfloat16", stem="end_to_end", **more):
    """A problem and the step of a graph without its capture, which needs a GPU."""
    maker = load(stem).callable_of(implementation)
    maker = replace(maker, capture=None, micro_batch=maker.micro_batch and 1)
    problem = ModelProblem("for tests", 32, 2, "cpu", 0, prepare=maker.prepare(dtype), **more)
    inputs = problem.optimizer, problem.tokens, problem.targets, dtype
    return problem, maker.step(twin_of(problem.model), *inputs)


GRAPHS = ["fused_graph", "sdpa_copies_graph", "clipped_graph", "accumulated_graph"]


@pytest.mark.parametrize("implementation", GRAPHS)
def test_graph_of_equal_numerics_passes_the_gate_of_its_peer(implementation):
    problem, step = uncaptured(implementation)
    problem.step_phase(step).run(None)  # creates the moments
    assert problem.gate_run(step, "autocast_bfloat16").passed


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["graph", "stored_logits_graph"])
def test_loss_of_a_larger_vocabulary_is_right_in_chunks_and_at_once(implementation):
    problem, step = uncaptured(implementation, stem="vocabulary", vocabulary=20_000)
    problem.freshen(1)
    assert problem.tokens.max() > sizes.VOCAB_SIZE
    problem.step_phase(step).run(None)
    assert problem.gate_run(step, "autocast_bfloat16").passed


def test_step_that_does_not_clip_is_refused(monkeypatch):
    problem, step = uncaptured("clipped_graph")
    monkeypatch.setattr(fused_adamw, "clip_factor", lambda norm, _: torch.ones_like(norm))
    problem.step_phase(step).run(None)
    with pytest.raises(WrongResult, match="did not update exp_avg"):
        problem.gate_run(step, "autocast_bfloat16")


def test_larger_batches_have_the_same_numerics_for_sdpa_and_ours():
    cases = load("end_to_end").cases("gpu")
    both = {"sdpa_compiled_blocks", "sdpa_graph", "sdpa_copies_graph", "graph"}
    for batch, size in ((64, "0.13B"), (8, "3.4B")):
        cell = {"size": size, "batch": batch, "dtype": "autocast_bfloat16"}
        found = {case.implementation for case in cases if cell.items() <= case.axes.items()}
        assert found == {*both, "accumulated_graph"}


def test_bf16_weights_need_a_step_implementation():
    benchmark = load("end_to_end", {"mine": "examples.student_step:train_step"})
    cases = benchmark.cases("gpu", {"dtype": ["bfloat16"]})
    assert not {"eager", "mine"} & {case.implementation for case in cases}
    with pytest.raises(Unsupported, match="no optimizer for bfloat16 weights"):
        step_maker(lambda model: model).prepare("bfloat16")


CPU_RUNGS = [
    rung.name
    for rung in RUNGS
    if not load("end_to_end").implementation(rung.implementation).needs_cuda
]


@pytest.mark.parametrize("name", CPU_RUNGS)
def test_rung_passes_gate_and_timed_check(name):
    problem, dtype = problem_of(name), rung_of(name).dtype
    step = step_of(name, problem)
    gate = problem.gate_run(step, dtype)
    assert gate.passed and set(gate.errors) == {"loss", "gradient", "gain"}
    problem.freshen(7)
    assert problem.check(dtype, "train_step", problem.step_phase(step).run(None)).passed


def test_bf16_weights_have_bf16_moments_and_an_exact_reference():
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
        expected = cross_entropy(twin.double()(problem.tokens), problem.targets)
    assert float(exact) == pytest.approx(float(expected), rel=1e-12)


def test_gradient_with_a_small_error_fails_the_gate():
    problem = problem_of("bf16_weights")
    problem._limits("bfloat16")  # cached before the eager model has the fault as well
    problem.model.head.weight.register_hook(lambda gradient: 1.02 * gradient)
    assert not problem.gate_run(step_of("bf16_weights", problem), "bfloat16").passed


@pytest.mark.parametrize("name, moment", [("float32", "exp_avg"), ("bf16_weights", "exp_avg_sq")])
def test_adamw_moment_that_is_not_updated_is_refused(name, moment):
    problem = problem_of(name)
    step = step_of(name, problem)
    problem.step_phase(step).run(None)
    assert problem.gate_run(step, rung_of(name).dtype).passed
    real = problem.optimizer.step

    def forgetful():
        states = [problem.optimizer.state[p] for p in problem.model.parameters()]
        old = [state[moment].clone() for state in states]
        real()
        for state, kept in zip(states, old, strict=True):
            state[moment].copy_(kept)

    problem.optimizer.step = forgetful
    with pytest.raises(WrongResult, match=f"did not update {moment} of"):
        problem.gate_run(step, rung_of(name).dtype)


def test_chunked_loss_and_gradients_match_cross_entropy(monkeypatch):
    monkeypatch.setattr(fused_loss, "CHUNK", 7)
    hidden = torch.randn(2, 32, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(50, (2, 32))
    expected = cross_entropy(hidden @ weight.T, targets)
    got = linear_cross_entropy(hidden, weight, targets)
    torch.testing.assert_close(got, expected)
    of = partial(torch.autograd.grad, inputs=(hidden, weight))
    torch.testing.assert_close(of(3 * got), of(3 * expected))


def test_chunked_loss_accumulates_gradients_in_float32(monkeypatch):
    monkeypatch.setattr(fused_loss, "CHUNK", 8)
    hidden = torch.randn(1, 512, 16).bfloat16()
    weight = torch.randn(50, 16).bfloat16().requires_grad_()
    targets = torch.randint(50, (1, 512))
    exact = weight.detach().double().requires_grad_()
    cross_entropy(hidden.double() @ exact.T, targets).backward()
    linear_cross_entropy(hidden, weight, targets).backward()
    off = (weight.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert weight.grad.dtype == torch.bfloat16 and off < 2**-8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizer_matches_adamw(dtype, device="cpu"):
    shapes = ((7, 5), (3,))
    ours = [torch.randn(s, dtype=dtype, device=device).requires_grad_() for s in shapes]
    theirs = [parameter.detach().clone().requires_grad_() for parameter in ours]
    optimizers = FusedAdamW(ours, lr=1e-2), torch.optim.AdamW(theirs, lr=1e-2, fused=True)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    # Rounding up or down changes bfloat16 by up to 2^-7 in each of the five steps.
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.04, "atol": 0}
    torch.testing.assert_close(ours, theirs, **close)
    mine, other = (
        [o.state[p][m] for p in o.param_groups[0]["params"] for m in ("exp_avg", "exp_avg_sq")]
        for o in optimizers
    )
    torch.testing.assert_close(mine, other, rtol=2 * close["rtol"], atol=close["rtol"])
    assert {int(state["step"]) for state in optimizers[0].state.values()} == {5}


@pytest.mark.interpreter
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter stands in for a GPU")
@pytest.mark.parametrize(("dtype", "narrow"), [("float32", "bfloat16"), ("bfloat16", None)])
def test_kernel_of_the_optimizer_matches_its_definition(dtype, narrow, monkeypatch):
    from lmperf.transformer import adamw_kernel

    monkeypatch.setattr(adamw_kernel, "_TENSORS", 3)
    dtype, low = getattr(torch, dtype), getattr(torch, narrow or dtype)
    scalars = *map(torch.tensor, (0.999, 0.01, 0.1)), torch.tensor(7, dtype=torch.int32)
    ours, exact = [], []
    # Blocks of 1,024 elements and parts of them; two launches, and one without copies.
    for count, is_copied in ((1500, True), (7, True), (1024, False), (2100, True), (9, True)):
        p, m, v = torch.randn(count), torch.randn(count), torch.rand(count)
        gradient = torch.randn(count).to(low if is_copied else dtype)
        for tensors in (ours, exact):
            weight, *moments = (x.to(dtype, copy=True) for x in (p, m, v))
            copy = weight.bfloat16() if narrow and is_copied else None
            tensors.append((weight, gradient, *moments, copy))
    adamw_kernel.launch(ours, scalars, (0.9, 0.999), 1e-8)
    for tensors in exact:
        fused_adamw.update(*tensors, *scalars, (0.9, 0.999), 1e-8)
    for found, expected in zip(ours, exact, strict=True):
        for mine, other in zip(found, expected, strict=True):
            if mine is None:
                continue
            # The interpreter truncates to bfloat16, where a GPU rounds.
            rtol = 1e-5 if mine.dtype == torch.float32 else 2**-7
            torch.testing.assert_close(mine, other, rtol=rtol, atol=1e-6)
        if dtype == torch.bfloat16:  # random bits round weights and second moments
            pairs = [pair for pair in zip(found, expected, strict=True) if pair[0] is not None]
            equal = [float((mine == other).float().mean()) for mine, other in pairs]
            assert min(equal[0], equal[3]) > 0.99


def test_kernel_of_the_optimizer_refuses_other_layouts():
    from lmperf.transformer.adamw_kernel import launch

    square = torch.zeros(3, 3)
    for p, g in ((square.T, square), (square, square[:, :2].T)):
        with pytest.raises(ValueError, match=r"\(3, 3\) or its gradient is not contiguous"):
            launch([(p, g, square, square, None)], 4 * [square], (0.9, 0.999), 1e-8)


def trained_at_two_rates(made, as_tensor, device="cpu"):
    """A parameter after two steps at one learning rate and two at another one."""
    torch.manual_seed(0)
    parameter = torch.randn(64, device=device).requires_grad_()
    optimizer = made([parameter])
    (group,) = optimizer.param_groups
    if as_tensor:
        group["lr"] = torch.tensor(group["lr"], device=device)
    for step in range(4):
        if step == 2:
            group["lr"] = group["lr"].fill_(0.1) if as_tensor else 0.1
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    return parameter.detach()


def test_learning_rate_may_be_a_tensor_that_changes(device="cpu"):
    expected = trained_at_two_rates(
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True), False, device
    )
    found = trained_at_two_rates(partial(FusedAdamW, lr=0.01), True, device)
    torch.testing.assert_close(found, expected)


@pytest.mark.compile
def test_second_model_of_a_process_has_its_own_compiled_updates(monkeypatch):
    """Dynamo compiles one function for at most eight lengths of a parameter."""
    monkeypatch.undo()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    for first in (10, 20, 30):
        parameters = [torch.randn(first + more).requires_grad_() for more in range(6)]
        optimizer = FusedAdamW(parameters, lr=0.1)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        before = [parameter.detach().clone() for parameter in parameters]
        optimizer.step()
        assert all((old != new).all() for old, new in zip(before, parameters, strict=True))


def test_bf16_weights_and_moments_follow_float32_on_average():
    ones = torch.ones(2**14)
    low, exact = ones.bfloat16().requires_grad_(), ones[:1].clone().requires_grad_()
    ours, theirs = FusedAdamW([low], lr=1e-4), torch.optim.AdamW([exact], lr=1e-4)
    for step in range(20):
        for parameter, optimizer in ((low, ours), (exact, theirs)):
            parameter.grad = torch.full_like(parameter, 0.1 if step else 1.0)
            optimizer.step()
    # A step is an eightieth of the spacing of bfloat16 at 1, and the decay of the second moment a
    # fourth of it.
    assert float(low.detach().float().mean()) == pytest.approx(float(exact.detach()), abs=1e-4)
    found, expected = ours.state[low]["exp_avg_sq"], theirs.state[exact]["exp_avg_sq"]
    assert float(found.float().mean()) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.slow
def test_tokens_are_reproducible_and_learnable():
    stream = token_stream(20, 33, seed=3)
    assert torch.equal(stream, token_stream(20, 33, seed=3))
    assert not torch.equal(stream, token_stream(20, 33, seed=4))
    assert int(stream.min()) >= 0 and int(stream.max()) < sizes.VOCAB_SIZE
    cell = "for tests", 16, 4, "cpu", 0
    found = losses(maker_of("float32"), "float32", *cell, steps=30, learning_rate=1e-2, warm_up=5)
    assert found[0] == pytest.approx(9.2, abs=0.3) and found[-1] < found[0] - 2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizer_matches_adamw_on_a_gpu(dtype):
    test_optimizer_matches_adamw(dtype, "cuda")


def test_error_at_the_end_of_a_failed_capture_hides_no_lack_of_memory():
    full = torch.OutOfMemoryError("Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB is free")
    other = RuntimeError("operation failed due to a previous error during capture")
    assert first_cause(other) is other and first_cause(full) is full
    other.__context__ = full
    assert first_cause(other) is full


def test_steps_before_a_capture_leave_no_trace(monkeypatch):
    """Without a GPU, so no capture follows. A step that fails leaves none either."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    weight, rate = torch.nn.Parameter(torch.ones(4)), torch.tensor(0.1)
    optimizer = torch.optim.AdamW([weight], lr=rate, foreach=False)

    def gradients():
        weight.grad = torch.ones(4)

    graphed, real = Graphed(gradients, optimizer), optimizer.step
    graphed._rates = [rate]

    def failing():
        real()
        raise MemoryError

    for step in (failing, real):
        optimizer.step = step
        with pytest.raises(MemoryError) if step is failing else nullcontext():
            graphed._warm_up(stream)
    assert torch.equal(weight, torch.ones(4)) and float(rate) == pytest.approx(0.1)
    assert not any(value.any() for value in optimizer.state[weight].values())
    optimizer.step()
    graphed._warm_up(stream)
    assert float(optimizer.state[weight]["step"]) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fused_graph", "graph", "bf16_graph"])
def test_graph_reads_new_tokens_and_counts_its_steps(name):
    problem, dtype = problem_of(name, "cuda"), rung_of(name).dtype
    step = step_of(name, problem)
    assert isinstance(step, Graphed)
    phase = problem.step_phase(step)
    for seed in (5, 6, 7):
        problem.freshen(seed)
        assert problem.check(dtype, "train_step", phase.run(None).clone()).passed
    assert problem.gate_run(step, dtype).passed and step.pool_mib > 0
    stale = phase.run(None).clone()
    problem.freshen(9)
    assert not problem.check(dtype, "train_step", stale).passed


@pytest.mark.gpu
@pytest.mark.parametrize(
    "maker, dtype",
    [
        (GRAPH, "autocast_bfloat16"),
        (GRAPH, "bfloat16"),
        (FUSED_GRAPH, "autocast_bfloat16"),
        (SDPA_GRAPH, "autocast_bfloat16"),
        (SDPA_COPIES_GRAPH, "autocast_bfloat16"),
        (STORED_LOGITS_GRAPH, "autocast_bfloat16"),
    ],
)
def test_graph_trains_from_its_first_replay_on(maker, dtype):
    found = []
    for capture in (Graphed, None):
        prepare = maker.prepare(dtype)
        problem = ModelProblem("for tests", 32, 2, "cuda", 0, prepare=prepare)
        (group,) = problem.optimizer.param_groups
        group["lr"] = 1e-3
        maker = replace(maker, capture=capture)
        inputs = problem.tokens, problem.targets, dtype
        step = maker.step(twin_of(problem.model), problem.optimizer, *inputs)
        losses = [float(step()) for _ in range(3)]
        state = problem.optimizer.state[problem.model.head.weight]
        found.append((losses, float(state["step"]), state["exp_avg"].float()))
    (losses, made, mean), (plain_losses, plain_made, plain_mean) = found
    assert made == plain_made == 3 and losses == pytest.approx(plain_losses, rel=1e-3)
    torch.testing.assert_close(
        mean, plain_mean, rtol=0.05, atol=0.05 * float(plain_mean.abs().max())
    )


@pytest.mark.gpu
def test_learning_rate_on_a_gpu_may_be_a_tensor_that_changes():
    test_learning_rate_may_be_a_tensor_that_changes("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name, as_tensor", [("graph", True), ("bf16_graph", False)])
def test_replays_follow_a_schedule_of_the_learning_rate(name, as_tensor):
    problem = problem_of(name, "cuda")
    step, optimizer = step_of(name, problem), problem.optimizer
    weight = problem.model.head.weight
    (group,) = optimizer.param_groups
    step()
    for rate, moves in ((0.0, False), (0.1, True), (0.0, False)):
        if as_tensor:
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        before = weight.detach().clone()
        step()
        assert torch.equal(weight, before) != moves
        assert isinstance(group["lr"], torch.Tensor) and float(group["lr"]) == pytest.approx(rate)


@pytest.mark.gpu
def test_graph_without_memory_says_how_much_it_lacked():
    parameter = torch.zeros(1024, device="cuda", requires_grad=True)
    optimizer = torch.optim.AdamW([parameter], lr=0.0, fused=True, capturable=True)
    _, total = torch.cuda.mem_get_info()
    calls = []

    def gradients():
        calls.append(None)
        if len(calls) > 3:  # the capture
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        optimizer.zero_grad()
        parameter.sum().backward()
        return parameter.detach().sum()

    current = torch.cuda.current_stream()
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate") as error:
        Graphed(gradients, optimizer)()
    found = out_of_memory(error.value)
    assert found.requested_bytes > total and 0 < found.free_bytes <= total
    assert torch.cuda.current_stream() == current
    assert float(torch.ones(4, device="cuda").sum()) == 4.0
