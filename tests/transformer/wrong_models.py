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


def no_mask_in_one_head(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    out = plain_attention(q, k, v, causal).clone()
    out[:, 1] = plain_attention(q[:, 1], k[:, 1], v[:, 1], causal=False)
    return out


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


def without_residual(model: TransformerLM) -> TransformerLM:
    twin = twin_of(model)
    last = twin.blocks[-1]

    def forward(x: Tensor) -> Tensor:
        x = x + last.attention(last.attention_norm(x))
        return last.feed_forward(last.feed_forward_norm(x))

    last.forward = forward
    return twin


def with_one_gradient_zeroed(model: TransformerLM) -> TransformerLM:
    twin = twin_of(model)
    down = twin.blocks[1].feed_forward.down
    down.forward = lambda x: F.linear(x, down.weight.detach() + 0 * down.weight)
    return twin


FAULTS = {
    "no mask in one head": lambda m: with_fault_in_attention(m, no_mask_in_one_head),
    "scale 1 % off": lambda m: with_fault_in_attention(m, scaled(1.01)),
    "scale 0.5 % off": lambda m: with_fault_in_attention(m, scaled(1.005)),
    "one key tile dropped": lambda m: with_fault_in_attention(m, one_tile_dropped),
    "no residual": without_residual,
    "one gradient zeroed": with_one_gradient_zeroed,
}
