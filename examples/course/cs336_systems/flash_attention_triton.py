"""FlashAttention-2 whose forward pass is a Triton kernel; it needs a GPU."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from cs336_systems.flash_attention import gradients

QUERIES, KEYS = 64, 32  # of a tile


@triton.jit
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    logsumexp_ptr,
    length,
    scale,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    """The output and logsumexp of one tile of queries of contiguous [batch, length, WIDTH]."""
    first, batch = tl.program_id(0) * QUERIES, tl.program_id(1)
    rows, channels = first + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    start_of = batch.to(tl.int64) * length
    at_rows = (start_of + rows)[:, None] * WIDTH + channels[None, :]
    is_row = rows < length
    q = tl.load(q_ptr + at_rows, mask=is_row[:, None], other=0.0)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, WIDTH), tl.float32)
    last = tl.minimum(first + QUERIES, length) if IS_CAUSAL else length
    for start in range(0, last, KEYS):
        keys = start + tl.arange(0, KEYS)
        at_keys = (start_of + keys)[:, None] * WIDTH + channels[None, :]
        k = tl.load(k_ptr + at_keys, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptr + at_keys, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        is_seen = keys[None, :] < length
        if IS_CAUSAL:
            is_seen = is_seen & (keys[None, :] <= rows[:, None])
        scores = tl.where(is_seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        kept, weights = tl.exp(top - higher), tl.exp(scores - higher[:, None])
        total = kept * total + tl.sum(weights, 1)
        mixed = kept[:, None] * mixed + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = higher
    tl.store(out_ptr + at_rows, mixed / total[:, None], mask=is_row[:, None])
    tl.store(logsumexp_ptr + start_of + rows, top + tl.log(total), mask=is_row)


class FlashAttentionTriton(torch.autograd.Function):
    """`FlashAttentionTriton.apply(q, k, v, is_causal)`; q, k, v: [batch, seq_len, d_head]."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        q, k, v = (tensor.contiguous() for tensor in (q, k, v))
        batch, length, width = q.shape
        out, logsumexp = torch.empty_like(q), q.new_empty(batch, length, dtype=torch.float32)
        forward_kernel[(triton.cdiv(length, QUERIES), batch)](
            *(q, k, v, out, logsumexp, length, 1 / math.sqrt(width)),
            WIDTH=width,
            QUERIES=QUERIES,
            KEYS=KEYS,
            IS_CAUSAL=is_causal,
        )
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx, d_out: Tensor):
        return *gradients(*ctx.saved_tensors, d_out, ctx.is_causal), None
