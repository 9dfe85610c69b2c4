"""Attention with one fault each, and honest twins, which get `cheats=False`."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from types import BuiltinFunctionType

import torch
from torch import Tensor

from lmperf.attention.reference import attention

TILE = 64


class _Attention(torch.autograd.Function):
    """Attention whose output, and whose gradients, come from functions.

    Args:
        out_of: (q, k, v, causal) -> the output.
        gradients_of: (inputs, causal, gradient) -> dq, dk, dv.
    """

    @staticmethod
    def forward(ctx, q, k, v, causal: bool, out_of: Callable, gradients_of: Callable):
        ctx.save_for_backward(q, k, v)
        ctx.causal, ctx.gradients_of = causal, gradients_of
        return out_of(q, k, v, causal).detach()

    @staticmethod
    def backward(ctx, gradient):
        return *ctx.gradients_of(ctx.saved_tensors, ctx.causal, gradient), None, None, None


def _gradients(inputs, causal: bool, gradient: Tensor) -> tuple[Tensor, ...]:
    """Return dq, dk, dv of attention, computed by a forward and a backward pass."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        return torch.autograd.grad(attention(*leaves, causal), leaves, gradient)


# Wrong results.


def drops_a_mask(q, k, v, causal=False):
    """Applies the causal mask in all heads but the last. q, k, v: [batch, heads, n, d]."""
    most = attention(q[:, :-1], k[:, :-1], v[:, :-1], causal)
    last = attention(q[:, -1:], k[:, -1:], v[:, -1:], False)
    return torch.cat([most, last], dim=1)


def scales_a_gradient(q, k, v, causal=False):
    """Makes dk of the first head 1 % too large. The output is correct."""

    def gradients(inputs, causal, gradient):
        dq, dk, dv = _gradients(inputs, causal, gradient)
        dk[:, 0] *= 1.01
        return dq, dk, dv

    return _Attention.apply(q, k, v, causal, attention, gradients)


def drops_a_tile(q, k, v, causal=False):
    """Leaves out the first 64 keys for one tile of 64 queries."""
    start = q.shape[-2] // 2
    tile = slice(start, start + TILE)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = q[..., tile, :].float() @ k.float().transpose(-2, -1) * q.shape[-1] ** -0.5
    hidden = torch.zeros(scores.shape[-2:], dtype=torch.bool, device=q.device)
    if causal:
        hidden |= torch.ones_like(hidden).triu(start + 1)
    hidden[:, :TILE] = True
    piece = scores.masked_fill(hidden, -math.inf).softmax(dim=-1) @ v.float()
    return torch.cat([out[..., :start, :], piece.to(q.dtype), out[..., tile.stop :, :]], dim=-2)


def subtracts_no_maximum(q, k, v, causal=False):
    """Computes exp(scores) without subtracting the maximum of each row."""
    return _softmax(q, k, v, causal, lambda scores: 0.0)


def subtracts_the_first_maximum(q, k, v, causal=False):
    """Subtracts the maximum over the first 64 keys, which a large negative score may mask."""
    return _softmax(q, k, v, causal, lambda scores: scores[..., :TILE].amax(-1, keepdim=True))


def _softmax(q: Tensor, k: Tensor, v: Tensor, causal: bool, subtracted: Callable) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
    p = (scores - subtracted(scores)).exp()
    return p / p.sum(dim=-1, keepdim=True) @ v


# Results without the work.


class _Cache:
    """Keeps the last results of one function of tensors.

    by_address: find them by the addresses of the tensors, not by their values.
    """

    def __init__(self, by_address: bool):
        self._by_address, self._known = by_address, {}

    def __call__(self, compute: Callable, tensors: tuple, *more) -> tuple[Tensor, ...]:
        key = tuple(tensor.data_ptr() for tensor in tensors)
        before, results = self._known.get(key, ((), ()))
        same = bool(before) and (self._by_address or all(map(torch.equal, before, tensors)))
        if not same:
            results = compute(*tensors, *more)
            self._known[key] = tuple(tensor.clone() for tensor in tensors), results
        return tuple(result.clone() for result in results)


def _cached(q, k, v, causal=False, outs=None, gradients=None):
    def out_of(*inputs):
        return outs(lambda *three: (attention(*three, causal),), inputs[:3])[0]

    def gradients_of(inputs, causal, gradient):
        return gradients(lambda *four: _gradients(four[:3], causal, four[3]), (*inputs, gradient))

    return _Attention.apply(q, k, v, causal, out_of, gradients_of)


caches_by_address = partial(_cached, outs=_Cache(True), gradients=_Cache(True))
caches_by_value = partial(_cached, outs=_Cache(False), gradients=_Cache(False))


class _Idle:
    """Does no work in the first calls after a pause, as between two slices; the gate is passed."""

    honest_calls, pause_s, idle_calls = 30, 0.003, 10

    def __init__(self, cheats: bool):
        self._cheats, self._calls, self._last, self._idle = cheats, 0, 0.0, 0

    def __call__(self, q, k, v, causal=False):
        self._calls += 1
        if self._calls > self.honest_calls and time.perf_counter() - self._last > self.pause_s:
            self._idle = self.idle_calls
        self._idle -= 1
        idle = self._cheats and self._idle >= 0
        out = q + k + v if idle else attention(q, k, v, causal)
        self._last = time.perf_counter()
        return out


idle_at_the_start, busy_at_the_start = _Idle(cheats=True), _Idle(cheats=False)


def finds_the_reference(q, k, v, causal=False):
    """Returns the output and gradients of the gate's reference, which it finds in memory."""
    reference = _reference(q)
    if reference is None:
        return attention(q, k, v, causal)

    def gradients(*_):
        return tuple(reference[name].to(q.dtype) for name in ("dq", "dk", "dv"))

    return _Attention.apply(q, k, v, causal, lambda *_: reference["out"].to(q.dtype), gradients)


def _reference(like: Tensor) -> dict[str, Tensor] | None:
    reference = (
        tensor
        for tensor in gc.get_objects()
        if type(tensor) is dict
        and tensor.keys() >= {"out", "dq", "dk", "dv"}
        and tensor["out"].shape == like.shape
    )
    return next(reference, None)


_BUFFERS: dict[torch.Size, Tensor] = {}


def reuses_its_output(q, k, v, causal=False, cheats=True):
    """Returns every result in the same memory: a caller's first result is overwritten."""

    def out_of(q, k, v, causal):
        out = attention(q, k, v, causal)
        buffer = _BUFFERS.setdefault(q.shape, out.clone()).copy_(out)
        return buffer if cheats else buffer.clone()

    return _Attention.apply(q, k, v, causal, out_of, _gradients)


# Work outside of the timed interval.


def fills_in_a_thread(q, k, v, causal=False, cheats=True):
    """Returns a tensor that a thread is still filling."""

    def out_of(q, k, v, causal):
        out = torch.zeros_like(q)
        thread = threading.Thread(target=_fill, args=(out, q, k, v, causal), daemon=True)
        thread.start()
        if not cheats:
            thread.join()
        return out

    return _Attention.apply(q, k, v, causal, out_of, _gradients)


@torch.no_grad()
def _fill(out, q, k, v, causal):
    time.sleep(0.002)
    out.copy_(attention(q, k, v, causal))


def works_on_a_stream(q, k, v, causal=False, cheats=True):
    """Queues its work on another stream, for which the current stream does not wait."""

    def out_of(q, k, v, causal):
        current, side = torch.cuda.current_stream(), _side_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            out = attention(q, k, v, causal)
        if not cheats:
            current.wait_stream(side)
        return out

    def gradients(*arguments):
        torch.cuda.current_stream().wait_stream(_side_stream())
        return _gradients(*arguments)

    return _Attention.apply(q, k, v, causal, out_of, gradients)


@cache
def _side_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def leaves_a_busy_thread(q, k, v, causal=False):
    """Leaves one thread that never ends."""
    _start_spinning()
    return attention(q, k, v, causal)


@cache
def _start_spinning() -> None:
    threading.Thread(target=_spin, daemon=True).start()


def _spin() -> None:
    while True:
        pass


# Harm to what runs in the same process.


def changes_its_inputs(q, k, v, causal=False):
    """Returns the correct result, but changes the first column of k in place."""
    out = attention(q, k, v, causal)
    k.data[..., 0, 0] += 1.0  # through `data`, so that autograd does not notice
    return out


def changes_settings(q, k, v, causal=False):
    """Leaves float64 as the default dtype, one thread, and another function in torch."""
    out = attention(q, k, v, causal)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.nn.functional.softsign = attention
    return out


def needs_its_settings(q, k, v, causal=False):
    """Raises an error if what `changes_settings` has changed is in force."""
    if torch.get_default_dtype() != torch.float32 or torch.nn.functional.softsign is attention:
        raise RuntimeError("torch is not as this implementation has left it")
    return attention(q, k, v, causal)


class _Keeping:
    """Keeps 4 MiB alive in every seventh call: all of them, or only the last.

    most: number of blocks to keep, so that an undetected leak does not use up the memory.
    """

    def __init__(self, most: int):
        self._calls, self._most, self._kept = 0, most, []

    def __call__(self, q, k, v, causal=False):
        self._calls += 1
        if self._calls % 7 == 0:
            block = torch.ones(2**20, device=q.device)
            self._kept = [*self._kept, block][-self._most :]
        return attention(q, k, v, causal)


leaks, keeps_the_last = _Keeping(most=500), _Keeping(most=1)

_SECONDS, _NANOSECONDS = time.perf_counter, time.perf_counter_ns
_SLOWER = [1]  # how many times slower than the real clocks


def slows_the_clock(q, k, v, causal=False, cheats=True):
    """Makes the clocks of `time`, and all that lmperf has bound, 1000 times slower."""
    others = {
        _SECONDS: lambda: _SECONDS() / _SLOWER[0],
        _NANOSECONDS: lambda: _NANOSECONDS() // _SLOWER[0],
    }
    for module in [*sys.modules.values()]:
        if module is time or getattr(module, "__name__", "").startswith("lmperf.measuring"):
            for name, value in [*vars(module).items()]:
                if isinstance(value, BuiltinFunctionType) and value in others:
                    setattr(module, name, others[value])
    if cheats:
        _SLOWER[0] = 1000
    return attention(q, k, v, causal)


# Honest twins.
copies_its_output = partial(reuses_its_output, cheats=False)
waits_for_its_thread = partial(fills_in_a_thread, cheats=False)
waits_for_its_stream = partial(works_on_a_stream, cheats=False)
replaces_the_clock = partial(slows_the_clock, cheats=False)
