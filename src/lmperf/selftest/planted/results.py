"""Attention with wrong results: everywhere, in one head, block or position, or in dtype."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lmperf.attention.reference import attention

TILE = 64


def zeros(q, k, v, causal=False):
    return (q + k + v) * 0


def mask_dropped_in_one_head(q, k, v, causal=False):
    """Applies the causal mask in all heads but the last. q, k, v: [batch, heads, n, d]."""
    most = attention(q[:, :-1], k[:, :-1], v[:, :-1], causal)
    last = attention(q[:, -1:], k[:, -1:], v[:, -1:], causal=False)
    return torch.cat([most, last], dim=1)


def scale_of_the_last_block(q, k, v, causal=False):
    """Scales the scores of the last 64 queries as if d were one less."""
    d = q.shape[-1]
    factor = torch.ones(q.shape[-2], 1, dtype=q.dtype, device=q.device)
    factor[-TILE:] = math.sqrt(d / (d - 1))
    return attention(q * factor, k, v, causal)


def nan_at_one_position(q, k, v, causal=False):
    out = attention(q, k, v, causal)
    spoilt = torch.zeros_like(out)
    spoilt[(0,) * (out.ndim - 2) + (out.shape[-2] // 2, 0)] = math.nan
    return out + spoilt


def in_another_dtype(q, k, v, causal=False):
    """Computes in bfloat16, and returns the dtype of the inputs."""
    narrow = (tensor.to(torch.bfloat16) for tensor in (q, k, v))
    return attention(*narrow, causal).to(q.dtype)


def in_float64(q, k, v, causal=False):
    """Returns float64 for inputs of any dtype."""
    return attention(q, k, v, causal).double()


def changes_its_inputs(q, k, v, causal=False):
    """Returns the correct result, but changes the first column of k in place."""
    out = attention(q, k, v, causal)
    k.data[..., 0, 0] += 1.0  # through `data`, so that autograd does not notice
    return out


def key_tile_dropped(q, k, v, causal=False):
    """Leaves out the first 64 keys for one tile of 64 queries."""
    return _with_separate_tile(q, k, v, causal, drop=True)


def no_tile_dropped(q, k, v, causal=False):
    """Computes as `key_tile_dropped` does but leaves out no keys: the result is correct."""
    return _with_separate_tile(q, k, v, causal, drop=False)


def _with_separate_tile(q: Tensor, k: Tensor, v: Tensor, causal: bool, drop: bool) -> Tensor:
    start = q.shape[-2] // 2
    tile = slice(start, start + TILE)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    piece = _queries(q[..., tile, :], k, v, start if causal else None, drop)
    return torch.cat([out[..., :start, :], piece.to(q.dtype), out[..., tile.stop :, :]], dim=-2)


def _queries(q: Tensor, k: Tensor, v: Tensor, start: int | None, drop: bool) -> Tensor:
    """Return attention of the given queries in float32.

    start: row of the first query in the causal mask; None: no mask. drop: leave out TILE keys.
    """
    scores = q.float() @ k.float().transpose(-2, -1) * q.shape[-1] ** -0.5
    hidden = torch.zeros(scores.shape[-2:], dtype=torch.bool, device=q.device)
    if start is not None:
        hidden |= torch.ones_like(hidden).triu(start + 1)
    if drop:
        hidden[:, :TILE] = True
    return scores.masked_fill(hidden, -math.inf).softmax(dim=-1) @ v.float()


def softmax_without_maximum(q, k, v, causal=False):
    """Computes exp(scores) without subtracting the maximum of each row."""
    return _softmax(q, k, v, causal, lambda scores: 0.0)


def maximum_of_the_first_tile(q, k, v, causal=False):
    """Subtracts the maximum over the first 64 keys from the scores of all keys."""
    return _softmax(q, k, v, causal, lambda scores: scores[..., :TILE].amax(-1, keepdim=True))


def _softmax(q: Tensor, k: Tensor, v: Tensor, causal: bool, subtracted) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
    p = (scores - subtracted(scores)).exp()
    return p / p.sum(dim=-1, keepdim=True) @ v
