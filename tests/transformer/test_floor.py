"""The work of a step's parts, beside numbers that were worked out by hand."""

import pytest

from lmperf.transformer.floor import step_work
from lmperf.transformer.flops import flops
from lmperf.transformer.sizes import ModelSize

# One layer, 4 tokens of one sequence, 10 words.
SIZE = ModelSize(d_model=8, d_ff=16, num_layers=1, num_heads=2)
WEIGHTS = 4 * 64 + 3 * 8 * 16 + 10 * 8


@pytest.mark.parametrize("dtype", ["autocast_bfloat16", "bfloat16"])
def test_matmuls_and_attention_are_all_flops(dtype):
    work = step_work(SIZE, 4, 1, dtype, vocab=10)
    assert work.matmul == 3 * 2 * 4 * WEIGHTS
    assert work.attention_backward == 2.5 * work.attention_forward, "five products for two"
    # A step counts four of the five: it does not count what is computed again.
    total = work.matmul + 3 * work.attention_forward
    assert total == flops(SIZE, 4, 1, "train_step", vocab=10)


@pytest.mark.parametrize(
    ("dtype", "stored", "per_weight"), [("autocast_bfloat16", 4, 28), ("bfloat16", 2, 14)]
)
def test_bytes_are_those_of_each_tensor_once(dtype, stored, per_weight):
    work = step_work(SIZE, 4, 1, dtype, vocab=10)
    assert work.optimizer == per_weight * SIZE.parameters(10)
    # Elements per token. Two additions, three norms with their gradients, and the embedding.
    stream = 2 * 8 + 3 * 8 + 3 * 3 * 8 + 2 * 8
    # Branches, normed values and their gradients, RoPE both ways, SwiGLU both ways, logits.
    bf16 = 2 * 8 + 3 * 8 + 3 * 8 + 2 * 6 * 8 + (3 + 5) * 16 + 2 * 10
    assert work.rest == 4 * (stored * stream + 2 * bf16)
