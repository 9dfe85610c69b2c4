"""FLOPs of `TransformerLM` in closed form. Imports no torch.

Symbols, in elements: b batch, n context, T = b n tokens, d = d_model, f = d_ff, L layers,
V vocabulary.
"""

from __future__ import annotations

from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

FLOPS_PER_FORWARD = {"forward": 1, "backward": 2, "forward_backward": 3, "train_step": 3}


def flops(
    size: ModelSize,
    context: int,
    batch: int,
    phase: str,
    vocab: int = VOCAB_SIZE,
    full: bool = False,
) -> int:
    """FLOPs of the matmuls of one phase: forward, backward, forward_backward or train_step.

    Each weight costs 2 FLOPs per token: 2 T (L (4 d^2 + 3 d f) + V d) for a forward pass. Causal
    attention must compute n (n + 1) / 2 of the n^2 scores, at 2 d FLOPs each for q k^T and as many
    for the values: 2 L b n (n + 1) d over all layers. Plain attention computes all n^2 scores and
    masks half of them; `full` counts them all: 4 L b n^2 d. The backward pass has two matmuls
    (input and weight gradient) for each one of the forward pass. The optimizer has none.

    Raises:
        KeyError: the phase is unknown.
    """
    weights = size.num_layers * size.linear_parameters + vocab * size.d_model
    scores = context**2 if full else context * (context + 1) // 2
    attention = 4 * size.num_layers * batch * scores * size.d_model
    return FLOPS_PER_FORWARD[phase] * (2 * batch * context * weights + attention)
