import pytest
import torch
import torch.nn.functional as F

from lmperf.transformer.model import RMSNorm, RotaryEmbedding, TransformerLM

VOCAB = 97


def small_model(**changes) -> TransformerLM:
    torch.manual_seed(0)
    shape = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64, "rope_theta": 1e4}
    return TransformerLM(VOCAB, 24, **(shape | changes))


def some_tokens(seq_len: int = 24) -> torch.Tensor:
    return torch.randint(0, VOCAB, (2, seq_len), generator=torch.Generator().manual_seed(1))


def test_rms_norm_agrees_with_torch():
    x = torch.randn(5, 16)
    norm = RMSNorm(16)
    norm.weight.data.normal_()
    torch.testing.assert_close(norm(x), F.rms_norm(x, (16,), norm.weight, eps=norm.eps))


def test_rope_keeps_norms_and_depends_only_on_distance():
    rotary = RotaryEmbedding(8, 32, 1e4).double()
    q, k = torch.randn(2, 8, dtype=torch.float64)
    rotated_q, rotated_k = rotary(q.expand(1, 1, 32, 8)), rotary(k.expand(1, 1, 32, 8))
    torch.testing.assert_close(rotated_q.norm(dim=-1), q.norm().expand(1, 1, 32))
    products = (rotated_q @ rotated_k.transpose(-2, -1))[0, 0]
    for distance in (0, 3, 11):
        diagonal = products.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-5, atol=1e-5)
    assert products.diagonal(-3)[0] != pytest.approx(products.diagonal(-11)[0].item(), abs=1e-3)


def test_logits_do_not_depend_on_later_tokens():
    model, tokens = small_model(), some_tokens()
    changed = tokens.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % VOCAB
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10], after[:, 10])


@pytest.mark.compile
def test_compiles_into_one_graph():
    model, tokens = small_model(), some_tokens()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(tokens), model(tokens))


def test_sequence_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match="25 tokens is longer than the context length 24"):
        small_model()(some_tokens(seq_len=25))
