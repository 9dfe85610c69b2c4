"""Custom model classes and train steps: how they are built, gated and checked."""

from functools import partial

import pytest
import torch
from torch import nn

from examples.student_model import LanguageModel
from examples.student_step import cross_entropy, train_step
from lmperf.benchmark import Implementation, Unsupported, WrongResult
from lmperf.benchmarks import load
from lmperf.own.model import (
    blocks_of,
    build,
    compiled_words,
    runnable,
    trained_by,
)
from lmperf.own.signatures import fault_of, is_model
from lmperf.transformer import sizes
from lmperf.transformer.counted_flops import forward_flops
from lmperf.transformer.flops import flops
from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

SIZE = ModelSize(64, 128, 2, 4)
PHASES = ("forward", "backward", "forward_backward", "train_step")


class TiedWithBuffers(LanguageModel):
    """The embedding is the head, and there are buffers of all kinds of dtypes."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.head.weight = self.embedding.weight
        with torch.no_grad():
            self.head.weight.mul_(0.02)
        for dtype in (torch.int64, torch.bool, torch.complex64, torch.bfloat16):
            self.register_buffer(str(dtype).replace(".", "_"), torch.ones(3, dtype=dtype))
        self.register_buffer("count", torch.tensor(0))


@pytest.mark.slow
def test_custom_model_passes_gate_and_timed_check(problem_of):
    problem, dtype = problem_of(TiedWithBuffers), "autocast_bfloat16"
    model = runnable(TiedWithBuffers, problem.model)
    assert model is not problem.model and isinstance(problem.model, TiedWithBuffers)
    gate = problem.gate(model, dtype, PHASES)
    assert gate.passed and set(gate.errors) == {"logits", "loss", "gradient", "gain"}
    phases = problem.phases(model, dtype)
    for name in PHASES:
        problem.freshen(7)
        assert problem.check(dtype, name, phases[name].run(phases[name].before())).passed, name


class Whole(nn.Module):
    """No list of blocks."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, vocab_size)
        self.heads = nn.ModuleList([nn.Linear(2, 2), nn.GELU()])

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


@pytest.mark.parametrize(
    ("model_class", "how", "calls"), [(LanguageModel, "by block", 2), (Whole, "as a whole", 1)]
)
def test_model_is_compiled_by_block_or_as_a_whole(problem_of, monkeypatch, model_class, how, calls):
    compiled = []
    monkeypatch.setattr("lmperf.own.model.compile_static", lambda one: compiled.append(one) or one)
    problem = problem_of(model_class)
    model = runnable(model_class, problem.model, compiled=True)
    assert compiled_words(problem.model) == how
    modules = [one for one in compiled if isinstance(one, nn.Module)]
    assert len(modules) == calls and len(compiled) == calls + 1, "the loss is compiled, too"
    assert problem.gate(model, "float32", ("forward",)).passed if how == "by block" else True


def test_blocks_are_the_list_with_most_parameters(problem_of):
    model = problem_of(LanguageModel).model
    assert len(blocks_of(model)) == SIZE.num_layers and blocks_of(Whole(4, 4)) is None


@pytest.mark.compile
def test_compiled_model_passes_gate_and_timed_check(problem_of, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    problem = problem_of(LanguageModel)
    model = runnable(LanguageModel, problem.model, compiled=True)
    assert problem.gate(model, "float32", PHASES).passed
    phase = problem.phases(model, "float32")["train_step"]
    assert problem.check("float32", "train_step", phase.run(None)).passed


def test_only_a_model_class_is_compiled():
    with pytest.raises(Unsupported, match="compiled: only a model class is compiled"):
        runnable(train_step, None, compiled=True)


def test_first_model_class_of_the_configuration_is_trained():
    step = ("my_step", "examples.student_step:train_step", {})
    own = ("own", "examples.student_model:LanguageModel", {})
    ours = ("", "", {})
    of = lambda *models: trained_by(Implementation("mine", models=models))  # noqa: E731
    name, built = of(step, own, ours)
    assert name == "own" and built.args == (LanguageModel,)
    assert of(step, ours) == of() == ("", None)
    with pytest.raises(Unsupported, match="model: my_step is not a model class"):
        of(step)


class Unused(LanguageModel):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.spare = nn.Linear(4, 4)


class Frozen(LanguageModel):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.head.weight.requires_grad_(False)


class Pair(LanguageModel):
    def forward(self, tokens):
        return super().forward(tokens), None


@pytest.mark.parametrize(
    ("model_class", "words"),
    [
        (Unused, r"the loss does not depend on spare\.weight, spare\.bias; leave these"),
        (Frozen, r"the loss does not depend on head\.weight"),
        (Pair, "the model returns a tuple; it must return the logits alone"),
    ],
)
def test_refused_model_is_told_the_parameter_or_result(problem_of, model_class, words):
    problem = problem_of(model_class)
    with pytest.raises(WrongResult, match=words):
        problem.gate(runnable(model_class, problem.model), "float32", PHASES)


def test_flops_and_parameters_are_those_of_the_custom_model(problem_of):
    problem = problem_of(LanguageModel)
    expected = flops(SIZE, 32, 2, "forward", 1000, full=True)
    assert forward_flops(problem.model, problem.tokens) == expected
    phases = problem.phases(problem.model, "float32")
    assert [phases[name].flops for name in PHASES] == [expected * n for n in (1, 2, 3, 3)]
    assert problem.parameters == 2 * 1000 * 64 + 2 * SIZE.linear_parameters + 5 * 64


def test_constructor_gets_only_the_arguments_it_takes():
    class Few(nn.Module):
        def __init__(self, vocab_size, d_model, dropout=0.0):
            super().__init__()
            self.got = vocab_size, d_model, dropout

    class Any(nn.Module):
        def __init__(self, **widths):
            super().__init__()
            self.got = widths

    class Theta(nn.Module):
        def __init__(self, vocab_size, theta):
            super().__init__()
            self.got = theta

    assert build(Few, SIZE, 32).got == (VOCAB_SIZE, 64, 0.0)
    assert build(Theta, SIZE, 32).got == sizes.ROPE_THETA and not fault_of(Theta, "model")
    assert build(Any, SIZE, 32).got["rope_theta"] == sizes.ROPE_THETA


def test_custom_function_runs_the_projects_model():
    assert not is_model(lambda model: model) and not is_model(3) and is_model(LanguageModel)
    memory = load("memory", {"mine": "lmperf.transformer.implementations:sdpa"})
    case = next(case for case in memory.cases("cpu") if case.implementation == "mine")
    with pytest.raises(Unsupported, match="memory takes a model class"):
        memory.observe(case, "forward", "cpu", 0)


@pytest.mark.slow
def test_custom_train_step_passes_gate_and_timed_check(problem_of):
    problem, dtype = problem_of(), "autocast_bfloat16"
    run = partial(problem.custom_step, train_step, problem.model, dtype)
    gate = problem.gate_run(run, dtype)
    assert gate.passed and set(gate.errors) == {"loss", "gradient", "gain"}
    problem.freshen(7)
    assert problem.check(dtype, "train_step", problem.step_phase(run).run(None)).passed


def keeps_gradients(model, optimizer, tokens, targets):
    loss = cross_entropy(model(tokens), targets)
    loss.backward()
    optimizer.step()
    return loss


def makes_no_step(model, optimizer, tokens, targets):
    optimizer.zero_grad()
    loss = cross_entropy(model(tokens), targets)
    loss.backward()
    return loss


def returns_a_number(model, optimizer, tokens, targets):
    return train_step(model, optimizer, tokens, targets).item()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (makes_no_step, "the optimizer did not step"),
        (returns_a_number, "the loss is a float; it must be"),
    ],
)
def test_incomplete_train_step_is_refused(problem_of, step, words):
    problem = problem_of()
    with pytest.raises(WrongResult, match=words):
        problem.gate_run(partial(problem.custom_step, step, problem.model, "float32"), "float32")


def test_train_step_that_accumulates_fails_the_timed_check(problem_of):
    problem = problem_of()
    run = partial(problem.custom_step, keeps_gradients, problem.model, "float32")
    assert problem.gate_run(run, "float32").passed
    step = problem.step_phase(run)
    step.run(None)
    assert not problem.check("float32", "train_step", step.run(None)).passed


def test_train_step_has_no_other_phases():
    with pytest.raises(Unsupported, match="timed in the benchmark end_to_end only"):
        runnable(train_step, None)
