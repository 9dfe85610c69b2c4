"""Public API of the kernels: `lrpe_cosine` with checks, autograd and torch.compile."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmperf.lrpe.triton import kernels
from lmperf.lrpe.triton.launch import INTERPRETED

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LARGEST_D = 1024
MOST_TOKENS = 2**30


def lrpe_cosine(
    x: Tensor,
    theta: Tensor,
    shape: Sequence[int],
    extra_tokens: int = 0,
    cache_angles: bool = False,
) -> Tensor:
    """Encode the position of every token by angles: concat(x cos, x sin), differentiable once.

    x: [batch, heads, extra_tokens + n, d], float32, float16 or bfloat16, any strides, d from 1 to
    1024. theta: [heads, e], of any of these dtypes; it gets no gradient. shape: lengths of the m
    axes, whose product is n, the last one fastest; m * e must be at least d. The first extra_tokens
    tokens have the angle 0. cache_angles: save cos and sin ([heads, extra_tokens + n, d] float32)
    for the backward pass instead of recomputing them from theta.

    Returns [batch, heads, extra_tokens + n, 2 d] in x's dtype, computed in float32. Like other
    elementwise operations it keeps the dtype of x under autocast. Raises TypeError for dtypes,
    ValueError for shapes, devices and a theta that requires a gradient.
    """
    shape = tuple(shape)
    check_arguments(x, theta, shape, extra_tokens)
    return LrpeCosine.apply(x, theta, shape, extra_tokens, cache_angles)


class LrpeCosine(torch.autograd.Function):
    """Autograd function: saves theta for the backward pass or, with cache_angles, cos and sin."""

    @staticmethod
    def forward(ctx, x, theta, shape, extra_tokens, cache_angles):
        out, angles = _forward(x, theta, shape, extra_tokens, cache_angles)
        ctx.save_for_backward(*((None, angles) if cache_angles else (theta, None)))
        ctx.shape, ctx.extra_tokens = shape, extra_tokens
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        dx = _backward(grad_out, *ctx.saved_tensors, ctx.shape, ctx.extra_tokens)
        return dx, None, None, None, None


def check_arguments(x: Tensor, theta: Tensor, shape: tuple[int, ...], extra_tokens: int) -> None:
    """Raise TypeError or ValueError, with a message of one line, for unsupported arguments."""
    if x.ndim != 4:
        raise ValueError(f"x must be [batch, heads, tokens, d], got {x.ndim} dimensions")
    if x.dtype not in DTYPES or theta.dtype not in DTYPES:
        raise TypeError(
            f"x and theta must be float32, float16 or bfloat16, got {x.dtype} and {theta.dtype}"
        )
    if x.device != theta.device:
        raise ValueError(
            f"x and theta must be on the same device, got x on {x.device}, theta on {theta.device}"
        )
    _check_shapes(x, theta, shape, extra_tokens)
    if theta.requires_grad and torch.is_grad_enabled():
        raise ValueError("theta gets no gradient: pass theta.detach()")
    _check_capability(x, theta)


def _check_shapes(x: Tensor, theta: Tensor, shape: tuple[int, ...], extra_tokens: int) -> None:
    _, heads, tokens, d = x.shape
    if x.numel() == 0:
        raise ValueError(f"x must not be empty, got {tuple(x.shape)}")
    if d > LARGEST_D:
        raise ValueError(f"d must be from 1 to {LARGEST_D}, got {d}")
    if tokens >= MOST_TOKENS:
        raise ValueError(f"x must have fewer than 2^30 tokens, got {tokens}")
    if theta.ndim != 2 or theta.shape[0] != heads:
        raise ValueError(f"theta must be [heads, e] with {heads} heads, got {tuple(theta.shape)}")
    if not shape or min(shape) < 1 or extra_tokens < 0:
        raise ValueError(
            f"shape must be positive lengths and extra_tokens 0 or more, "
            f"got {shape} and {extra_tokens}"
        )
    if math.prod(shape) + extra_tokens != tokens:
        raise ValueError(
            f"x must have prod(shape) + extra_tokens tokens, got {tokens} for {shape} + "
            f"{extra_tokens}"
        )
    if len(shape) * theta.shape[1] < d:
        raise ValueError(
            f"theta is too narrow: {len(shape)} axes of {theta.shape[1]} channels are fewer than "
            f"d = {d}"
        )


def _check_capability(x: Tensor, theta: Tensor) -> None:
    if not x.is_cuda and not INTERPRETED:
        raise ValueError(
            f"the kernel needs a CUDA device, got {x.device}; on a CPU it runs under "
            "Triton's interpreter (TRITON_INTERPRET=1 before triton is imported)"
        )
    if INTERPRETED and torch.bfloat16 in (x.dtype, theta.dtype):
        raise TypeError(
            "Triton's interpreter gives wrong results in bfloat16: use float32 or float16"
        )


@torch.library.custom_op("lmperf::lrpe_cosine_forward", mutates_args=())
def _forward_op(
    x: Tensor, theta: Tensor, shape: Sequence[int], extra_tokens: int, cache_angles: bool
) -> tuple[Tensor, Tensor]:
    out, angles = kernels.forward(x, theta, tuple(shape), extra_tokens, cache_angles)
    return out, x.new_empty(0, dtype=torch.float32) if angles is None else angles


@_forward_op.register_fake
def _(x, theta, shape, extra_tokens, cache_angles):
    batch, heads, tokens, d = x.shape
    kept = (2, heads, tokens, d) if cache_angles else (0,)
    angles = x.new_empty(kept, dtype=torch.float32)
    return x.new_empty((batch, heads, tokens, 2 * d)), angles


@torch.library.custom_op("lmperf::lrpe_cosine_backward", mutates_args=())
def _backward_op(
    grad_out: Tensor,
    theta: Tensor | None,
    angles: Tensor | None,
    shape: Sequence[int],
    extra_tokens: int,
) -> Tensor:
    return kernels.backward(grad_out, theta, angles, tuple(shape), extra_tokens)


@_backward_op.register_fake
def _(grad_out, theta, angles, shape, extra_tokens):
    batch, heads, tokens, width = grad_out.shape
    return grad_out.new_empty((batch, heads, tokens, width // 2))


def _forward(*arguments) -> tuple[Tensor, Tensor | None]:
    """Run the forward kernel: directly, or under torch.compile as an operator.

    The dispatch of an operator takes 20 us more than a direct launch.
    """
    run = _forward_op if torch.compiler.is_compiling() else kernels.forward
    return run(*arguments)


def _backward(*arguments) -> Tensor:
    run = _backward_op if torch.compiler.is_compiling() else kernels.backward
    return run(*arguments)
