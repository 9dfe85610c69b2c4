import pytest
import torch

from lmperf.attention.triton import flash_attention
from lmperf.transformer import implementations
from lmperf.transformer.model import TransformerLM, cross_entropy, plain_attention
from lmperf.transformer.training import loss_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def model():
    with torch.device(DEVICE):
        return TransformerLM(50, 32, d_model=160, num_layers=2, num_heads=2, d_ff=64)


ATTENTIONS = {"": plain_attention, "sdpa_": implementations._sdpa, "triton_": flash_attention}


@pytest.mark.slow
@pytest.mark.parametrize(
    "attention, way", [("", "compiled"), ("sdpa_", "compiled_blocks"), ("triton_", "compiled")]
)
def test_compiled_implementation_keeps_attention_compiles_loss(model, attention, way, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda f, **_: compiled.append(f) or f)
    run = getattr(implementations, attention + way)(model)
    assert all(block.attention.attention is plain_attention for block in model.blocks)
    tokens, targets = torch.randint(50, (2, 2, 32), device=DEVICE)
    torch.testing.assert_close(run(tokens), model(tokens), rtol=1e-4, atol=1e-5)
    expected = cross_entropy(run(tokens), targets)
    torch.testing.assert_close(loss_of(run, tokens, targets), expected)
    assert cross_entropy in compiled
    modules = [
        one.blocks if way == "compiled" else [one] for one in compiled[:-1] if is_module(one)
    ]
    blocks = [block for found in modules for block in found]
    assert {block.attention.attention for block in blocks} == {ATTENTIONS[attention]}


def is_module(one):
    return isinstance(one, torch.nn.Module)


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["triton_compiled", "triton_compiled_blocks"])
def test_triton_kernel_runs_inside_a_compiled_model(model, way):
    tokens, targets = torch.randint(50, (2, 2, 32), device=DEVICE)
    run = getattr(implementations, way)(model)
    with torch.autocast("cuda", torch.bfloat16):
        expected, got = model(tokens), run(tokens)
        loss = loss_of(run, tokens, targets)
    torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
    torch.testing.assert_close(loss, cross_entropy(expected, targets), rtol=1e-2, atol=0)


@pytest.mark.compile
def test_what_cannot_be_one_graph_is_an_error():
    function = implementations.compile_static(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        function(torch.ones(2))
