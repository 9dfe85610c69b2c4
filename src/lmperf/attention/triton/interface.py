"""What a caller uses: checked arguments, autograd, autocast, torch.compile."""

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmperf.attention.triton import backward as backward_pass
from lmperf.attention.triton import forward as forward_pass
from lmperf.attention.triton.launch import addressable
from lmperf.attention.triton.tiles import INTERPRETED

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LARGEST_D = 256


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
    """`FlashAttention.apply(q, k, v, is_causal=False, scale=None, return_lse=False)`.

    Arguments as those of `flash_attention`, without its care for autocast. Saves q, k, v, out and
    the logsumexp ([batch, n], or [batch, heads, n]).
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False, scale=None, return_lse=False):
        check_arguments(q, k, v, is_causal, scale)
        scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        out, lse = _forward(*_with_heads(q.ndim, q, k, v), bool(is_causal), scale)
        if q.ndim == 3:
            out, lse = out.squeeze(1), lse.squeeze(1)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.is_causal, ctx.scale = bool(is_causal), scale
        ctx.set_materialize_grads(False)
        return (out, lse) if return_lse else out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out, grad_lse=None):
        q, k, v, out, lse = ctx.saved_tensors
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        tensors = _with_heads(q.ndim, q, k, v, out, lse, grad_out, grad_lse)
        dq, dk, dv = _backward(*tensors, ctx.is_causal, ctx.scale)
        if q.ndim == 3:
            dq, dk, dv = dq.squeeze(1), dk.squeeze(1), dv.squeeze(1)
        return dq, dk, dv, None, None, None


def _with_heads(ndim: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors with a dimension of one head where the caller's have none."""
    if ndim == 4:
        return tensors
    return tuple(None if t is None else t.unsqueeze(1) for t in tensors)


def check_arguments(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> None:
    """Raises TypeError or ValueError, in one line, for what the kernels cannot do."""
    if q.ndim not in (3, 4):
        raise ValueError(
            f"q must be [batch, heads, n, d] or [batch, n, d], got {q.ndim} dimensions"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v must have one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if q.dtype not in DTYPES:
        raise TypeError(f"dtype must be float32, float16 or bfloat16, got {q.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(
            f"q, k and v must be on one device, got {q.device}, {k.device}, {v.device}"
        )
    _check_shapes(q, k, v, causal)
    if scale is not None and not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be positive and finite, got {scale}")
    _check_capability(q)


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> None:
    n, d, m = q.shape[-2], q.shape[-1], k.shape[-2]
    wrong = None
    if k.shape != v.shape:
        wrong = "k and v must have one shape"
    elif k.ndim != q.ndim or q.shape[:-2] != k.shape[:-2] or d != k.shape[-1]:
        wrong = "q and k may differ in length only"
    elif not 1 <= d <= LARGEST_D:
        raise ValueError(f"d must be from 1 to {LARGEST_D}, got {d}")
    elif q.numel() == 0 or k.numel() == 0:
        wrong = "q, k and v must not be empty"
    elif causal and n != m:
        wrong = "causal attention needs as many keys as queries"
    if wrong:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{wrong}, got {shapes}")


def _check_capability(q: Tensor) -> None:
    if not q.is_cuda and not INTERPRETED:
        raise ValueError(
            f"the kernel needs a CUDA device, got {q.device}; on a CPU it runs under "
            "Triton's interpreter (TRITON_INTERPRET=1 before triton is imported)"
        )
    if INTERPRETED and q.dtype == torch.bfloat16:
        raise TypeError("Triton's interpreter computes bfloat16 wrongly: use float32 or float16")


# Operators for torch.compile, which takes each as a whole. They are registered for their devices
# and nothing else: what `custom_op` adds, autograd among it, costs the host more than the launch.
_LIBRARY = torch.library.Library("lmperf", "FRAGMENT")
_LIBRARY.define(
    "flash_attention_forward(Tensor q, Tensor k, Tensor v, bool causal, float scale)"
    " -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
)
_LIBRARY.define(
    "flash_attention_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,"
    " Tensor grad_out, Tensor? grad_lse, bool causal, float scale) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
)


def _forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
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
