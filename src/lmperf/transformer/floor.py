"""The work of a train step's parts in closed form: FLOPs, and bytes with each tensor once.

The step is the one that the report recommends: bf16 matmuls, flash attention, fused kernels for
norms, RoPE and SwiGLU, and AdamW in one pass. Imports no torch. Symbols as in `flops`: T = b n
tokens, d = d_model, f = d_ff, L layers, V vocabulary; r bytes of an element of the residual stream.
"""

from __future__ import annotations

from typing import NamedTuple

from lmperf.dtypes import dtype_of
from lmperf.transformer.flops import flops
from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

BF16 = 2  # bytes


class Work(NamedTuple):
    """What a train step computes, and moves if each kernel reads and writes a tensor once.

    Attributes:
        matmul: FLOPs of matmuls with weights, forward and backward.
        attention_forward, attention_backward: FLOPs of causal attention, by half of its scores. The
            backward has five products, as rates of kernels count it: it computes one again.
        optimizer: bytes that AdamW reads and writes.
        rest: bytes that norms, residual additions, RoPE, SwiGLU, embedding and loss read and write.
    """

    matmul: int
    attention_forward: int
    attention_backward: int
    optimizer: int
    rest: int


def step_work(
    size: ModelSize, context: int, batch: int, dtype: str, vocab: int = VOCAB_SIZE
) -> Work:
    """The work of a train step.

    dtype: "autocast_bfloat16" (float32 weights and moments, bf16 copies of weights and bf16
    gradients) or "bfloat16" (all of them bf16).

    AdamW reads a weight, its gradient and both moments, and writes the weight and both moments and,
    under autocast, its copy: 28 bytes, or 14. Each kernel reads and writes each of its tensors
    once, in a layer, per token: two residual additions with norms (2 (r + 2 + r + 2) d forward,
    2 (3 r + 2) d backward), RoPE with the split of queries, keys and values (12 d each way), SwiGLU
    (6 f and 10 f); beside the layers, the embedding ((r + r) d), the last norm and the logits with
    their gradient (4 V).
    """
    stored = dtype_of(dtype).bytes
    tokens, d, f = batch * context, size.d_model, size.d_ff
    whole = flops(size, context, batch, "forward", vocab)
    weights = 2 * tokens * (size.num_layers * size.linear_parameters + vocab * d)
    norm = (stored + BF16) * d, (3 * stored + BF16) * d
    addition = (stored + BF16) * d
    layer = 2 * (sum(norm) + addition) + 2 * 12 * d + (6 + 10) * f
    per_token = size.num_layers * layer + sum(norm) + 2 * stored * d + 2 * BF16 * vocab
    return Work(
        matmul=3 * weights,
        attention_forward=whole - weights,
        attention_backward=5 * (whole - weights) // 2,
        optimizer=7 * stored * size.parameters(vocab),
        rest=tokens * per_token,
    )
