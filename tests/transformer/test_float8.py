"""Float8 matmuls: the eager model that a step with float8 operands is compared with."""

import torch

from lmperf.transformer.float8 import TOLERANCE, with_float8
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.training import adamw, train_step


def gradients(model, run):
    tokens, targets = torch.randint(97, (2, 2, 24), generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad(cross_entropy(run(tokens), targets), list(model.parameters()))


def test_gradients_are_those_of_float8_operands():
    model = TransformerLM(97, 24, 64, 2, 4, 128)
    rounded, exact = gradients(model, with_float8(model)), gradients(model, model)
    errors = [
        float((got - same).norm() / same.norm()) for got, same in zip(rounded, exact, strict=True)
    ]
    assert 0.01 < max(errors) < 0.2


def bfloat16_weights(model, learning_rate):
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    return adamw(model, learning_rate)


def test_gate_passes_float8_only_with_its_tolerance(small_models):
    problem = ModelProblem("for tests", 32, 2, "cpu", 0, prepare=bfloat16_weights)
    run = with_float8(problem.model)

    def step():
        return train_step(run, problem.optimizer, problem.tokens, problem.targets, "bfloat16")

    assert problem.gate_run(step, "bfloat16", TOLERANCE).passed
    assert not problem.gate_run(step, "bfloat16").passed
