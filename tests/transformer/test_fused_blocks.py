"""Fused blocks: loss and gradients are those of the model's own blocks."""

import pytest
import torch

from lmperf.transformer.fused_blocks import with_fused_blocks
from lmperf.transformer.model import TransformerLM, cross_entropy, twin_of
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.sizes import SIZES, ModelSize
from lmperf.transformer.steps import GRAPH


@pytest.mark.slow
def test_fused_blocks_match_the_blocks_of_the_model(device="cpu"):
    with torch.device(device):
        model = TransformerLM.of_size(ModelSize(48, 80, 2, 4), 100, 32)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        tokens, targets = torch.randint(100, (2, 2, 16))
    parameters = [*model.parameters()]

    def gradients(run):
        loss = cross_entropy(run(tokens), targets)
        return loss, *torch.autograd.grad(loss, parameters)

    found, expected = gradients(with_fused_blocks(model)), gradients(model)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
def test_fused_blocks_on_the_device_match_the_model():
    test_fused_blocks_match_the_blocks_of_the_model("cuda")


@pytest.mark.gpu
def test_graph_of_fused_blocks_passes_the_gate(monkeypatch):
    # d_head 80 and widths that are no powers of two, as in the largest size.
    monkeypatch.setitem(SIZES, "for tests", ModelSize(320, 640, 2, 4))
    problem = ModelProblem("for tests", 256, 2, "cuda", 0, prepare=GRAPH.prepare("bfloat16"))
    inputs = problem.optimizer, problem.tokens, problem.targets
    step = GRAPH.step(twin_of(problem.model), *inputs, "bfloat16")
    assert problem.gate_run(step, "bfloat16").passed
