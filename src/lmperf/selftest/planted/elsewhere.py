"""Attention that works outside the timed interval: in a thread, on a stream, in another phase."""

from __future__ import annotations

import threading

import torch

from lmperf.attention.reference import attention
from lmperf.selftest.planted.answers import gradients


class _InThread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal):
        ctx.save_for_backward(q, k, v)
        ctx.causal = causal
        out = torch.zeros_like(q)
        threading.Thread(target=_fill, args=(out, q, k, v, causal), daemon=True).start()
        return out

    @staticmethod
    def backward(ctx, gradient):
        return *gradients(ctx.saved_tensors, ctx.causal, gradient), None


@torch.no_grad()
def _fill(out, q, k, v, causal):
    out.copy_(attention(q, k, v, causal))


def in_thread(q, k, v, causal=False):
    """Returns a tensor that a thread is still filling."""
    return _InThread.apply(q, k, v, causal)


class _OnStream(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal):
        ctx.save_for_backward(q, k, v)
        ctx.causal = causal
        side = _side_stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return attention(q, k, v, causal)

    @staticmethod
    def backward(ctx, gradient):
        torch.cuda.current_stream().wait_stream(_side_stream())
        return *gradients(ctx.saved_tensors, ctx.causal, gradient), None


_SIDE: list[torch.cuda.Stream] = []


def _side_stream() -> torch.cuda.Stream:
    if not _SIDE:
        _SIDE.append(torch.cuda.Stream())
    return _SIDE[0]


def on_stream(q, k, v, causal=False):
    """Queues its work on another stream, for which the current stream does not wait."""
    return _OnStream.apply(q, k, v, causal)


class _Early(torch.autograd.Function):
    known: torch.Tensor | None = None

    @staticmethod
    def forward(ctx, q, k, v, causal):
        ctx.save_for_backward(q, k, v)
        ctx.causal, ctx.ready = causal, None
        known = _Early.known
        if known is not None and known.shape == q.shape:
            ctx.ready = gradients((q, k, v), causal, known)
        return attention(q, k, v, causal)

    @staticmethod
    def backward(ctx, gradient):
        _Early.known = gradient
        ready = ctx.ready or gradients(ctx.saved_tensors, ctx.causal, gradient)
        return *ready, None


def early_backward(q, k, v, causal=False):
    """Computes dq, dk, dv in the forward pass, from the output gradient of an earlier call."""
    return _Early.apply(q, k, v, causal)
