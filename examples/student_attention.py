"""A course's FlashAttention-2: tiled forward pass in plain PyTorch, backward pass by hand.

    implementations:
      attention: { mine: "examples.student_attention:FlashAttention" }
      flash_attention: { mine: "examples.student_attention:FlashAttention" }

It takes three dimensions; inputs of four are passed to it with batch and heads merged.
"""

import math

import torch

TILE = 64


class FlashAttention(torch.autograd.Function):
    """`FlashAttention.apply(q, k, v, is_causal)`; q, k, v: [batch, seq_len, d_head]."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        batch, seq_len, d_head = q.shape
        scale = 1 / math.sqrt(d_head)
        out = torch.empty_like(q)
        logsumexp = q.new_empty(batch, seq_len, dtype=torch.float32)
        for first in range(0, seq_len, TILE):
            rows = slice(first, first + TILE)
            tile = q[:, rows].float()
            top = tile.new_full(tile.shape[:2], float("-inf"))
            total, mixed = torch.zeros_like(top), torch.zeros_like(tile)
            for start in range(0, first + TILE if is_causal else seq_len, TILE):
                columns = slice(start, start + TILE)
                scores = _masked(tile @ k[:, columns].float().mT * scale, first, start, is_causal)
                higher = torch.maximum(top, scores.amax(-1))
                kept, weights = torch.exp(top - higher), torch.exp(scores - higher[..., None])
                total = kept * total + weights.sum(-1)
                mixed = kept[..., None] * mixed + weights @ v[:, columns].float()
                top = higher
            out[:, rows] = mixed / total[..., None]
            logsumexp[:, rows] = top + total.log()
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx, d_out):
        q, k, v, out, logsumexp = (tensor.float() for tensor in ctx.saved_tensors)
        d_out = d_out.float()
        scale = 1 / math.sqrt(q.shape[-1])
        scores = _masked(q @ k.mT * scale, 0, 0, ctx.is_causal)
        weights = torch.exp(scores - logsumexp[..., None])
        delta = (out * d_out).sum(-1, keepdim=True)
        d_scores = weights * (d_out @ v.mT - delta) * scale
        gradients = d_scores @ k, d_scores.mT @ q, weights.mT @ d_out
        saved = ctx.saved_tensors
        return *(g.to(t.dtype) for g, t in zip(gradients, saved, strict=False)), None


def _masked(scores, first, start, is_causal):
    """Mask later keys, for scores of queries from `first` on and keys from `start` on."""
    if not is_causal:
        return scores
    queries = first + torch.arange(scores.shape[-2], device=scores.device)
    keys = start + torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill(keys > queries[:, None], float("-inf"))
