"""FlashAttention-2 in PyTorch, tile by tile; its backward pass recomputes the scores."""

import math

import torch
from torch import Tensor

TILE = 64


def hide_later_keys(scores: Tensor, first_query: int = 0, first_key: int = 0) -> Tensor:
    """Mask the keys after each query; scores: [..., queries, keys] of a tile that begins there."""
    queries = first_query + torch.arange(scores.shape[-2], device=scores.device)
    keys = first_key + torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill(keys > queries[:, None], float("-inf"))


def gradients(q, k, v, out, logsumexp, d_out, is_causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of attention, from the scores that are computed again, in float32."""
    wide = [tensor.float() for tensor in (q, k, v, out, d_out)]
    scale = 1 / math.sqrt(q.shape[-1])
    scores = wide[0] @ wide[1].mT * scale
    if is_causal:
        scores = hide_later_keys(scores)
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    delta = (wide[3] * wide[4]).sum(-1, keepdim=True)
    d_scores = weights * (wide[4] @ wide[2].mT - delta) * scale
    found = d_scores @ wide[1], d_scores.mT @ wide[0], weights.mT @ wide[4]
    return tuple(gradient.to(q.dtype) for gradient in found)


class FlashAttentionPyTorch(torch.autograd.Function):
    """`FlashAttentionPyTorch.apply(q, k, v, is_causal)`; q, k, v: [batch, seq_len, d_head]."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        batch, length, _ = q.shape
        out, logsumexp = torch.empty_like(q), q.new_empty(batch, length, dtype=torch.float32)
        for first in range(0, length, TILE):
            rows = slice(first, first + TILE)
            tile = q[:, rows].float() / math.sqrt(q.shape[-1])
            top = tile.new_full(tile.shape[:2], float("-inf"))
            total, mixed = torch.zeros_like(top), torch.zeros_like(tile)
            for start in range(0, min(first + TILE, length) if is_causal else length, TILE):
                keys = slice(start, start + TILE)
                scores = tile @ k[:, keys].float().mT
                if is_causal:
                    scores = hide_later_keys(scores, first, start)
                higher = torch.maximum(top, scores.amax(-1))
                kept, weights = torch.exp(top - higher), torch.exp(scores - higher[..., None])
                total = kept * total + weights.sum(-1)
                mixed = kept[..., None] * mixed + weights @ v[:, keys].float()
                top = higher
            out[:, rows] = (mixed / total[..., None]).to(q.dtype)
            logsumexp[:, rows] = top + total.log()
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor):
        return *gradients(*ctx.saved_tensors, d_out, ctx.is_causal), None
