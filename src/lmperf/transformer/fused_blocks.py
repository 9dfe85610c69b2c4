"""Blocks of the model with fused kernels for RMSNorm, RoPE and SwiGLU; see `block_kernels`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmperf.transformer import block_kernels
from lmperf.transformer.model import Block, RMSNorm, TransformerLM, twin_of

_LIBRARY = torch.library.Library("lmperf", "FRAGMENT")
_OPERATORS = {
    "swiglu": "(Tensor gate_up) -> Tensor",
    "swiglu_gradient": "(Tensor gate_up, Tensor grad_out) -> Tensor",
    "rope": "(Tensor qkv, Tensor cos, Tensor sin) -> (Tensor, Tensor, Tensor)",
    "rope_gradient": "(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin) -> Tensor",
    "rms_norm_gradient": "(Tensor x, Tensor weight, Tensor grad_normed, Tensor grad_residual,"
    " float eps) -> (Tensor, Tensor)",
}
for _name, _schema in _OPERATORS.items():
    _LIBRARY.define(f"{_name}{_schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for _device in ("CUDA", "CPU"):
        _LIBRARY.impl(_name, getattr(block_kernels, _name), _device)


@torch.library.register_fake("lmperf::swiglu", lib=_LIBRARY)
def _(gate_up):
    return gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)


@torch.library.register_fake("lmperf::swiglu_gradient", lib=_LIBRARY)
def _(gate_up, grad_out):
    return torch.empty_like(gate_up)


@torch.library.register_fake("lmperf::rope", lib=_LIBRARY)
def _(qkv, cos, sin):
    return tuple(qkv.new_empty(part.shape) for part in qkv.unbind(2))


@torch.library.register_fake("lmperf::rope_gradient", lib=_LIBRARY)
def _(dq, dk, dv, cos, sin):
    batch, seq_len, heads, d_head = dq.shape
    return dq.new_empty(batch, seq_len, 3, heads, d_head)


@torch.library.register_fake("lmperf::rms_norm_gradient", lib=_LIBRARY)
def _(x, weight, grad_normed, grad_residual, eps):
    rows = x.numel() // x.shape[-1]
    parts = min(rows, block_kernels.PROGRAMS)
    return torch.empty_like(x), x.new_empty(parts, x.shape[-1], dtype=torch.float32)


class _SwiGLU(torch.autograd.Function):
    """`apply(gate_up [..., 2 f])` -> silu(gate) * up, [..., f]."""

    @staticmethod
    def forward(ctx, gate_up):
        ctx.save_for_backward(gate_up)
        return torch.ops.lmperf.swiglu(gate_up)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        (gate_up,) = ctx.saved_tensors
        return torch.ops.lmperf.swiglu_gradient(gate_up, grad_out.contiguous())


class _RoPE(torch.autograd.Function):
    """`apply(qkv [b, n, 3, h, d], cos, sin)` -> queries and keys, rotated, and values."""

    @staticmethod
    def forward(ctx, qkv, cos, sin):
        ctx.save_for_backward(cos, sin)
        return torch.ops.lmperf.rope(qkv, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx, dq, dk, dv):
        return torch.ops.lmperf.rope_gradient(dq, dk, dv, *ctx.saved_tensors), None, None


class _ResidualNorm(torch.autograd.Function):
    """`apply(x, weight, eps, dtype)` -> x and its RMSNorm in a dtype.

    Both results have one backward pass, which adds the gradients of both uses of x.
    """

    @staticmethod
    def forward(ctx, x, weight, eps, dtype):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        exact = x.float()
        inverse = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + eps)
        return x.view_as(x), (exact * inverse * weight.float()).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_residual, grad_normed):
        x, weight = ctx.saved_tensors
        grads = grad_normed.contiguous(), grad_residual.contiguous()
        grad_x, parts = torch.ops.lmperf.rms_norm_gradient(x, weight, *grads, ctx.eps)
        return grad_x, parts.sum(0).to(weight.dtype), None, None


class FusedBlock(nn.Module):
    """A `Block` that shares the modules of another one; input and output as there."""

    def __init__(self, block: Block):
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        attention, feed_forward = self.block.attention, self.block.feed_forward
        x, normed = _residual_norm(x, self.block.attention_norm)
        qkv = attention.qkv(normed).unflatten(-1, (3, attention.num_heads, -1))
        rotary = attention.rotary
        heads = (part.transpose(1, 2) for part in _RoPE.apply(qkv, rotary.cos, rotary.sin))
        mixed = attention.attention(*heads, causal=True)
        x = x + attention.output(mixed.transpose(1, 2).flatten(-2))
        x, normed = _residual_norm(x, self.block.feed_forward_norm)
        return x + feed_forward.down(_SwiGLU.apply(feed_forward.gate_up(normed)))


def _residual_norm(x: Tensor, norm: RMSNorm) -> tuple[Tensor, Tensor]:
    device = x.device.type
    low = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if low else norm.weight.dtype
    return _ResidualNorm.apply(x, norm.weight, norm.eps, dtype)


def with_fused_blocks(model: TransformerLM) -> TransformerLM:
    """A copy of the model with fused blocks; parameters and buffers are shared."""
    twin = twin_of(model)
    twin.blocks = nn.ModuleList(map(FusedBlock, twin.blocks))
    return twin
