import pytest
import torch

from lmperf.transformer import implementations
from lmperf.transformer.model import TransformerLM, plain_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def model():
    torch.manual_seed(0)
    with torch.device(DEVICE):
        return TransformerLM(50, 32, d_model=160, num_layers=2, num_heads=2, d_ff=64)


@pytest.mark.parametrize("name", ["sdpa", "triton"])
def test_another_attention_computes_the_same_with_the_same_parameters(model, name):
    tokens = torch.randint(50, (2, 32), device=DEVICE)
    other = getattr(implementations, name)(model)
    assert all(a is b for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert all(block.attention.attention is plain_attention for block in model.blocks)
    expected, got = model(tokens), other(tokens)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    weight = model.blocks[0].attention.qkv.weight
    grads = [torch.autograd.grad(logits.square().sum(), weight)[0] for logits in (expected, got)]
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_the_kernel_runs_inside_compiled_blocks(model):
    tokens = torch.randint(50, (2, 32), device=DEVICE)
    with torch.autocast("cuda", torch.bfloat16):
        expected = model(tokens)
        got = implementations.triton_compiled_blocks(model)(tokens)
    torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
