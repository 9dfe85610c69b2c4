"""FlashAttention-2 in plain PyTorch: the algorithm of the Triton kernels, readable and on CPUs.

Dao 2023, FlashAttention-2, algorithms 1 and 2: tiles of queries, tiles of keys, and for each row a
running maximum and a running sum (online softmax); the backward pass recomputes each tile of P from
the saved logsumexp. Needs one tile of scores and one number per row besides inputs and outputs.
Tiles that a causal mask hides entirely are skipped.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

QUERY_TILE = 256
KEY_TILE = 256


def tiled_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(scale Q K^T) V without the scores in memory, differentiable once.

    q: [..., n, d]; k, v: [..., m, d], one dtype. scale defaults to 1 / sqrt(d). Matmuls run in the
    dtype of the inputs, or in that of autocast; softmax and sums run in float32. Returns
    [..., n, d] in the dtype of the matmuls.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        q, k, v = (t.to(torch.get_autocast_dtype(device)) for t in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast(device, enabled=False):
        return TiledAttention.apply(q, k, v, causal, scale)


def _tiles(n_queries: int, n_keys: int, causal: bool) -> Iterator[tuple[slice, list[slice]]]:
    """Each tile of queries with the tiles of keys that it attends to."""
    for start in range(0, n_queries, QUERY_TILE):
        rows = slice(start, min(start + QUERY_TILE, n_queries))
        seen = min(rows.stop, n_keys) if causal else n_keys
        yield rows, [slice(j, min(j + KEY_TILE, n_keys)) for j in range(0, seen, KEY_TILE)]


def _scores(q: Tensor, k: Tensor, rows: slice, columns: slice, causal: bool, scale) -> Tensor:
    scores = (q[..., rows, :] @ k[..., columns, :].transpose(-2, -1)).float() * scale
    if causal and columns.stop > rows.start + 1:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores.masked_fill_(hidden.triu(rows.start - columns.start + 1), -math.inf)
    return scores


class TiledAttention(torch.autograd.Function):
    """Algorithms 1 (forward) and 2 (backward) of Dao 2023, tile by tile."""

    @staticmethod
    def forward(ctx, q, k, v, causal, scale):
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
        for rows, key_tiles in _tiles(q.shape[-2], k.shape[-2], causal):
            total = lse.new_zeros(lse[..., rows].shape)
            maximum = torch.full_like(total, -math.inf)
            acc = q[..., rows, :].new_zeros(q[..., rows, :].shape, dtype=torch.float32)
            for columns in key_tiles:
                scores = _scores(q, k, rows, columns, causal, scale)
                new_maximum = torch.maximum(maximum, scores.amax(dim=-1))
                p = scores.sub_(new_maximum[..., None]).exp_()
                correction = (maximum - new_maximum).exp_()
                total = total * correction + p.sum(dim=-1)
                acc.mul_(correction[..., None]).add_(p.to(v.dtype) @ v[..., columns, :])
                maximum = new_maximum
            out[..., rows, :] = acc / total[..., None]
            lse[..., rows] = maximum + total.log()
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(t, dtype=torch.float32) for t in (q, k, v))
        delta = (grad_out.float() * out.float()).sum(dim=-1, keepdim=True)
        for rows, key_tiles in _tiles(q.shape[-2], k.shape[-2], ctx.causal):
            d_out = grad_out[..., rows, :]
            for columns in key_tiles:
                scores = _scores(q, k, rows, columns, ctx.causal, ctx.scale)
                p = scores.sub_(lse[..., rows, None]).exp_()
                dv[..., columns, :] += p.to(v.dtype).transpose(-2, -1) @ d_out
                dp = (d_out @ v[..., columns, :].transpose(-2, -1)).float()
                ds = dp.sub_(delta[..., rows, :]).mul_(p).mul_(ctx.scale).to(q.dtype)
                dq[..., rows, :] += ds @ k[..., columns, :]
                dk[..., columns, :] += ds.transpose(-2, -1) @ q[..., rows, :]
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None
