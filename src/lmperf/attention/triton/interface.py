"""Public API of the kernels: `flash_attention` with autograd, autocast and torch.compile."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmperf.attention.triton import backward as backward_pass
from lmperf.attention.triton import forward as forward_pass
from lmperf.attention.triton.arguments import check_arguments
from lmperf.attention.triton.launch import addressable


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale Q K^T) V by FlashAttention-2, differentiable once.

    q: [batch, heads, n, d] or [batch, n, d]; k, v: the same with m keys. float32, float16 or
    bfloat16, any strides, d from 1 to 256. With `causal`, query i sees keys 0 ... i, and m must
    be n. scale defaults to 1 / sqrt(d) and must be positive. Under autocast the inputs are cast to
    its dtype, as torch's own attention does.

    Returns out [..., n, d] in the dtype of the inputs and, with `return_lse`, the logsumexp of the
    scaled scores [..., n] (float32, natural logarithm), through which gradients flow as well.
    Raises TypeError for dtypes, ValueError for shapes, devices and scale.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    return FlashAttention.apply(q, k, v, causal, scale, return_lse)


class FlashAttention(torch.autograd.Function):
    """Autograd function; call `apply(q, k, v, is_causal=False, scale=None, return_lse=False)`.

    Arguments as in `flash_attention`, but autocast is ignored. Saves q, k, v, out and the logsumexp
    ([batch, n] or [batch, heads, n]) for the backward pass.
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False, scale=None, return_lse=False):
        is_causal, scale = bool(is_causal), scale if scale is None else float(scale)
        # Otherwise `forward.plan` checks the arguments, once per signature.
        if q.ndim != 4 or torch.compiler.is_compiling():
            check_arguments(q, k, v, is_causal, scale)
        out, lse = _forward(*_with_heads(q.ndim, q, k, v), is_causal, scale)
        if q.ndim == 3:
            out, lse = out.squeeze(1), lse.squeeze(1)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.is_causal, ctx.scale = is_causal, scale
        ctx.set_materialize_grads(False)
        return (out, lse) if return_lse else out

    @staticmethod
    def backward(ctx, grad_out, grad_lse=None):
        # `once_differentiable` takes the host longer than a launch.
        guarded = torch.is_grad_enabled() or torch.compiler.is_compiling()
        return (_guarded_gradients if guarded else _gradients)(ctx, grad_out, grad_lse)


def _gradients(ctx, grad_out: Tensor | None, grad_lse: Tensor | None):
    q, k, v, out, lse = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    tensors = _with_heads(q.ndim, q, k, v, out, lse, grad_out, grad_lse)
    dq, dk, dv = _backward(*tensors, ctx.is_causal, ctx.scale)
    if q.ndim == 3:
        dq, dk, dv = dq.squeeze(1), dk.squeeze(1), dv.squeeze(1)
    return dq, dk, dv, None, None, None


_guarded_gradients = once_differentiable(_gradients)


def _with_heads(ndim: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors as [batch, heads, ...]; tensors without heads get a dimension of one head."""
    if ndim == 4:
        return tensors
    return tuple(None if t is None else t.unsqueeze(1) for t in tensors)


# Operators for torch.compile, which does not trace into them. Only device kernels are registered:
# what `custom_op` adds, such as autograd, takes the host longer than a launch.
_LIBRARY = torch.library.Library("lmperf", "FRAGMENT")
_LIBRARY.define(
    "flash_attention_forward(Tensor q, Tensor k, Tensor v, bool causal, float? scale)"
    " -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
)
_LIBRARY.define(
    "flash_attention_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,"
    " Tensor grad_out, Tensor? grad_lse, bool causal, float? scale) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    if torch.compiler.is_compiling():
        return torch.ops.lmperf.flash_attention_forward(q, k, v, causal, scale)
    return forward_pass.forward(q, k, v, causal, scale)


def _backward(*arguments) -> tuple[Tensor, Tensor, Tensor]:
    if torch.compiler.is_compiling():
        return torch.ops.lmperf.flash_attention_backward(*arguments)
    return backward_pass.backward(*arguments)


for _device in ("CUDA", "CPU"):
    _LIBRARY.impl("flash_attention_forward", forward_pass.forward, _device)
    _LIBRARY.impl("flash_attention_backward", backward_pass.backward, _device)


@torch.library.register_fake("lmperf::flash_attention_forward", lib=_LIBRARY)
def _(q, k, v, causal, scale):
    return torch.empty_like(addressable(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.register_fake("lmperf::flash_attention_backward", lib=_LIBRARY)
def _(q, k, v, out, lse, grad_out, grad_lse, causal, scale):
    return tuple(torch.empty_like(addressable(t)) for t in (q, k, v))
