"""Fused blocks: loss and gradients are those of the model's own blocks."""

from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from lmperf.transformer.fused_blocks import with_fused_blocks
from lmperf.transformer.model import TransformerLM, cross_entropy, twin_of
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.sizes import SIZES, ModelSize
from lmperf.transformer.steps import GRAPH


def loss_and_gradients(run, model, tokens, targets):
    loss = cross_entropy(run(tokens), targets)
    return loss, *torch.autograd.grad(loss, [*model.parameters()])


@pytest.mark.slow
def test_fused_blocks_match_the_blocks_of_the_model(
    whole=True, device="cpu", compiled=lambda block: block
):
    with torch.device(device):
        model = TransformerLM.of_size(ModelSize(48, 80, 2, 4), 100, 32)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        tokens, targets = torch.randint(100, (2, 2, 16))
    fused = with_fused_blocks(model, whole)
    fused.blocks = nn.ModuleList(map(compiled, fused.blocks))
    found, expected = (loss_and_gradients(run, model, tokens, targets) for run in (fused, model))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.compile
def test_blocks_share_one_graph_with_the_same_gradients():
    backend = CompileCounterWithBackend("aot_eager")
    compiled = partial(torch.compile, dynamic=False, fullgraph=True, backend=backend)
    test_fused_blocks_match_the_blocks_of_the_model(False, compiled=compiled)
    assert backend.frame_count == 1


@pytest.mark.gpu
def test_fused_blocks_on_the_device_match_the_model():
    test_fused_blocks_match_the_blocks_of_the_model(False, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["autocast_bfloat16", "bfloat16"])
def test_graph_of_fused_blocks_passes_the_gate(dtype, monkeypatch):
    # d_head 80 and widths that are no powers of two, as in the largest size.
    monkeypatch.setitem(SIZES, "for tests", ModelSize(320, 640, 2, 4))
    problem = ModelProblem("for tests", 256, 2, "cuda", 0, prepare=GRAPH.prepare(dtype))
    inputs = problem.optimizer, problem.tokens, problem.targets
    step = GRAPH.step(twin_of(problem.model), *inputs, dtype)
    assert problem.gate_run(step, dtype).passed
