"""Models with one fault each; they share the parameters of the correct model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lmperf.transformer.model import Attention, TransformerLM, plain_attention, twin_of


def with_fault_in_attention(model: TransformerLM, attention: Attention) -> TransformerLM:
    """A twin of the model with another attention in its last block."""
    twin = twin_of(model)
    twin.blocks[-1].attention.attention = attention
    return twin


def scaled(factor: float) -> Attention:
    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
        return plain_attention(q * factor, k, v, causal)

    return attention


def one_tile_dropped(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """The last 16 queries of one head of one sequence do not see the first 16 keys."""
    scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    rows = torch.arange(q.shape[-2])
    scores = scores.masked_fill(rows[None, :] > rows[:, None], float("-inf"))
    scores[0, 1, -16:, :16] = float("-inf")
    return torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v


def with_one_gradient_zeroed(model: TransformerLM) -> TransformerLM:
    twin = twin_of(model)
    down = twin.blocks[1].feed_forward.down
    down.forward = lambda x: F.linear(x, down.weight.detach() + 0 * down.weight)
    return twin


FAULTS = {
    "scale 1 % off": lambda m: with_fault_in_attention(m, scaled(1.01)),
    "one key tile dropped": lambda m: with_fault_in_attention(m, one_tile_dropped),
    "one gradient zeroed": with_one_gradient_zeroed,
}
