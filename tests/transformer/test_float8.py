"""Float8 matmuls: the eager model that a step with float8 operands is compared with."""

import pytest
import torch

from lmperf.transformer.float8 import RECIPES, with_float8
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.training import adamw, train_step


def gradients(model, run):
    tokens, targets = torch.randint(97, (2, 2, 24), generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad(cross_entropy(run(tokens), targets), list(model.parameters()))


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_are_those_of_float8_operands(recipe):
    model = TransformerLM(97, 24, 64, 2, 4, 128)
    rounded, exact = gradients(model, with_float8(model, recipe)), gradients(model, model)
    errors = [
        float((got - same).norm() / same.norm()) for got, same in zip(rounded, exact, strict=True)
    ]
    assert 0.01 < max(errors) < 0.2


def bfloat16_weights(model, learning_rate):
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return adamw(model, learning_rate)


@pytest.mark.parametrize("recipe", RECIPES)
def test_gate_passes_float8_only_with_its_tolerance(small_models, recipe):
    problem = ModelProblem("for tests", 32, 2, "cpu", 0, prepare=bfloat16_weights)
    run = with_float8(problem.model, recipe)

    def step():
        return train_step(run, problem.optimizer, problem.tokens, problem.targets, "bfloat16")

    assert problem.gate_run(step, "bfloat16", recipe).passed
    assert not problem.gate_run(step, "bfloat16").passed


@pytest.mark.parametrize("factor", [0.0, 1.2])
def test_gate_of_float8_finds_a_wrong_gradient(small_models, factor):
    problem = ModelProblem("for tests", 32, 2, "cpu", 0, prepare=bfloat16_weights)
    run = with_float8(problem.model, "fp8_graph")

    def step():
        loss = train_step(run, problem.optimizer, problem.tokens, problem.targets, "bfloat16")
        problem.model.blocks[0].attention.output.weight.grad *= factor
        return loss

    assert not problem.gate_run(step, "bfloat16", "fp8_graph").passed
