"""The gate and the check of models: correct models pass, wrong ones fail for the right reason."""

import weakref

import pytest
import torch
from wrong_models import FAULTS, scaled

from lmperf.benchmark import STRICT, WrongResult
from lmperf.transformer.implementations import sdpa
from lmperf.transformer.model import cross_entropy, plain_attention, twin_of
from lmperf.transformer.model_accuracy import compared
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.sizes import SIZES, ModelSize
from lmperf.transformer.training import WithLoss

PHASES = ("forward", "backward", "forward_backward", "train_step")


@pytest.fixture
def problem(small_problem):
    small_problem._clear()
    small_problem.freshen(0)
    return small_problem


@pytest.mark.parametrize("dtype", ["float32", "autocast_bfloat16"])
def test_correct_model_passes_the_gate(problem, dtype):
    gate = problem.gate(sdpa(problem.model), dtype, PHASES)
    assert gate.passed
    assert set(gate.errors) == {"logits", "loss", "gradient", "gain"} == set(gate.pytorch())


@pytest.mark.parametrize("fault", ["one key tile dropped", "one gradient zeroed"])
def test_wrong_model_fails_the_gate(problem, fault):
    assert not problem.gate(FAULTS[fault](problem.model), "autocast_bfloat16", PHASES).passed


def losing(factor):
    """A `WithLoss` whose loss is wrong by this factor."""
    return lambda model: WithLoss(
        model, lambda tokens, targets: factor * cross_entropy(model(tokens), targets)
    )


def written_out(logits, targets):
    logits = logits - logits.max(dim=-1, keepdim=True).values
    log_sums = logits.exp().sum(dim=-1, keepdim=True).log()
    return (log_sums - logits.gather(-1, targets[..., None])).mean()


def test_cross_entropy_written_out_in_float32_passes(monkeypatch):
    """The largest logit takes the rounding of a sum, which rare tokens show: 4e-5."""
    monkeypatch.setattr("lmperf.transformer.model_problem.VOCAB_SIZE", 10_000)
    monkeypatch.setitem(SIZES, "narrow", ModelSize(64, 128, 1, 2))
    problem = ModelProblem("narrow", 16, 2, "cpu", seed=1)
    phases, model = ["train_step"], twin_of(problem.model)
    run = WithLoss(model, lambda tokens, targets: written_out(model(tokens), targets))
    assert problem.gate(run, "float32", phases).passed
    run.loss(problem.tokens, problem.targets).backward()
    got = {"head.weight": problem.model.head.weight.grad}
    errors, _ = compared(got, problem._reference)
    _, bounds = problem._limits("float32")
    assert 1e-5 < errors["head.weight"] < bounds["head.weight"] < 1e-3
    run = WithLoss(model, lambda tokens, targets: 1.0001 * cross_entropy(model(tokens), targets))
    assert problem.gate(run, "float32", phases).verdict == "failed_check"


def test_gate_checks_both_loss_and_logits_of_with_loss(problem):
    right = losing(1.0)(twin_of(problem.model))
    gate = problem.gate(right, "float32", PHASES)
    assert gate.passed and set(gate.errors) == {"logits", "loss", "gradient", "gain"}
    assert not problem.gate(losing(1.001)(problem.model), "float32", PHASES).passed
    other = WithLoss(FAULTS["scale 1 % off"](problem.model), right.loss)
    gate = problem.gate(other, "float32", PHASES)
    assert not gate.passed and gate.worst == "logits"


def test_gate_frees_activations_of_the_logits_before_the_loss(problem):
    """3.4B compiled, whose first call needs 60 of 80 GiB, was once too large to be checked."""
    saved = []

    def logits(tokens):
        ones = torch.ones(())
        saved.append(weakref.ref(ones.untyped_storage()))
        return problem.model(tokens) * ones

    def loss(tokens, targets):
        assert saved[0]() is None
        return cross_entropy(problem.model(tokens), targets)

    assert problem.gate(WithLoss(logits, loss), "float32", PHASES).passed
    assert len(saved) == 1


def test_parts_of_a_train_step_are_marked_in_order(problem):
    model = problem.model
    chunks = WithLoss(model, lambda tokens, targets: cross_entropy(model(tokens), targets))
    for run, parts in ((model, ["forward", "loss"]), (chunks, ["forward"])):
        ended = []
        loss = problem.phases(run, "float32")["train_step"].parts(ended.append)
        assert ended == [*parts, "backward", "optimizer"]
        assert problem.check("float32", "train_step", loss).passed


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_timed_phases_use_the_loss_of_with_loss(problem, phase):
    for factor, right in ((1.0, True), (1.001, False)):
        result = timed_result(problem, losing(factor)(problem.model), "float32", phase)
        assert problem.check("float32", phase, result).passed == right


def test_failed_gate_names_parameter_and_pytorch_error(problem):
    gate = problem.gate(FAULTS["one gradient zeroed"](problem.model), "float32", PHASES)
    assert "blocks.1.feed_forward.down.weight" in gate.worst_in_words
    assert gate.errors["gradient"] == pytest.approx(1.0)
    assert gate.pytorch()["gradient"] < gate.bounds["gradient"] < 1e-5


def test_wrong_scale_everywhere_fails_only_the_gain_bound(problem):
    gate = problem.gate(FAULTS["scale 1 % off"](problem.model), "autocast_bfloat16", PHASES)
    assert not gate.passed and gate.worst_in_words == "gain of blocks.2.attention.qkv.weight"
    assert gate.errors["gain"] == pytest.approx(0.01, rel=0.3)
    assert gate.errors["gradient"] < gate.bounds["gradient"]


def test_wrong_eager_model_exceeds_rounding_error_limit(problem):
    """With a fault in the eager model, bounds from its error alone would pass everything."""
    problem._limits("float32")
    block = problem.model.blocks[-1].attention
    kept = problem._pytorch.pop(("float32", STRICT))
    try:
        block.attention = scaled(1.01)
        gate = problem.gate(twin_of(problem.model), "float32", PHASES)
    finally:
        block.attention = plain_attention
        problem._pytorch["float32", STRICT] = kept
    assert not gate.passed
    assert gate.errors["gradient"] == pytest.approx(gate.pytorch()["gradient"], rel=0.1)


def timed_result(problem, model, dtype, phase):
    """A copy of the result of a timed call on fresh tokens."""
    problem.freshen(3)
    timed = problem.phases(model, dtype)[phase]
    result = timed.run(timed.before())
    return None if result is None else result.detach().clone()


@pytest.mark.parametrize(
    "phase, dtype",
    [
        ("forward", "autocast_bfloat16"),
        ("backward", "float32"),
        ("forward_backward", "autocast_bfloat16"),
        ("train_step", "float32"),
    ],
)
def test_timed_call_of_a_correct_model_passes_the_check(problem, phase, dtype):
    result = timed_result(problem, sdpa(problem.model), dtype, phase)
    gate = problem.check(dtype, phase, result)
    assert gate.passed
    assert ("loss" in gate.errors) == (phase != "backward")
    assert ("gradient" in gate.errors) == (phase != "forward")
    present = [parameter.grad is not None for parameter in problem.model.parameters()]
    assert all(present) if phase != "forward" else not any(present)


def remembering(model):
    """A model that returns the logits of its first call, and their gradients, for any tokens."""
    first = []

    def forward(tokens):
        if not first:
            first.append(tokens.clone())
        return model(first[0])

    return forward


@pytest.mark.parametrize(
    "phase, dtype", [("backward", "autocast_bfloat16"), ("train_step", "float32")]
)
def test_cached_answer_is_detected(problem, phase, dtype):
    cached = remembering(problem.model)
    assert problem.gate(cached, dtype, ["forward"]).passed
    result = timed_result(problem, cached, dtype, phase)
    assert not problem.check(dtype, phase, result).passed


@pytest.mark.parametrize("result", [torch.zeros(2), torch.zeros((), dtype=torch.float64)])
def test_result_that_is_not_a_loss_is_refused(problem, result):
    with pytest.raises(WrongResult, match="the loss"):
        problem.check("float32", "forward", result)


def test_changed_tokens_are_refused(problem):
    result = timed_result(problem, problem.model, "float32", "forward")
    problem.tokens[0, 0] += 1
    with pytest.raises(WrongResult, match="tokens"):
        problem.check("float32", "forward", result)


def test_changed_weights_are_refused(problem):
    result = timed_result(problem, problem.model, "float32", "forward")
    weight = problem.model.norm.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[3] = weight[3].nextafter(torch.tensor(2.0))
    try:
        with pytest.raises(WrongResult, match="weights"):
            problem.check("float32", "forward", result)
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def test_timed_step_without_optimizer_step_is_refused(problem, monkeypatch):
    result = timed_result(problem, problem.model, "float32", "train_step")
    assert problem.check("float32", "train_step", result).passed
    with monkeypatch.context() as patch:
        patch.setattr(problem.optimizer, "step", lambda: None)
        result = timed_result(problem, problem.model, "float32", "train_step")
    with pytest.raises(WrongResult, match="optimizer"):
        problem.check("float32", "train_step", result)
    problem._steps -= 1
