"""Blocks of the model with fused kernels for RMSNorm, RoPE and SwiGLU; see `block_kernels`.

A block adds the output of its feed-forward layer to the residual stream together with the first
norm of the next block, as within a block: the sum is read once. Between blocks the stream is
therefore a pair of the stream and the branch that has not been added to it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmperf.transformer import block_kernels
from lmperf.transformer.model import Block, RMSNorm, TransformerLM, twin_of

LIBRARY = torch.library.Library("lmperf", "FRAGMENT")
_OPERATORS = {
    "swiglu": "(Tensor gate_up) -> Tensor",
    "swiglu_gradient": "(Tensor gate_up, Tensor grad_out) -> Tensor",
    "rope": "(Tensor qkv, Tensor cos, Tensor sin) -> Tensor",
    "rope_gradient": "(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin) -> Tensor",
    "added_rms_norm": "(Tensor x, Tensor branch, Tensor weight, float eps) -> (Tensor, Tensor)",
    "rms_norm_gradient": "(Tensor x, Tensor weight, Tensor grad_normed, Tensor grad_residual,"
    " float eps, ScalarType branch) -> (Tensor, Tensor, Tensor)",
}
for _name, _schema in _OPERATORS.items():
    LIBRARY.define(f"{_name}{_schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for _device in ("CUDA", "CPU"):
        LIBRARY.impl(_name, getattr(block_kernels, _name), _device)


@torch.library.register_fake("lmperf::swiglu", lib=LIBRARY)
def _(gate_up):
    return gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)


@torch.library.register_fake("lmperf::swiglu_gradient", lib=LIBRARY)
def _(gate_up, grad_out):
    return torch.empty_like(gate_up)


@torch.library.register_fake("lmperf::rope", lib=LIBRARY)
def _(qkv, cos, sin):
    return qkv.new_empty(qkv.movedim(2, 0).shape)


@torch.library.register_fake("lmperf::rope_gradient", lib=LIBRARY)
def _(dq, dk, dv, cos, sin):
    batch, seq_len, heads, d_head = dq.shape
    return dq.new_empty(batch, seq_len, 3, heads, d_head)


@torch.library.register_fake("lmperf::added_rms_norm", lib=LIBRARY)
def _(x, branch, weight, eps):
    return torch.empty_like(x), torch.empty_like(branch)


@torch.library.register_fake("lmperf::rms_norm_gradient", lib=LIBRARY)
def _(x, weight, grad_normed, grad_residual, eps, branch):
    narrow = x.new_empty(x.shape if branch != x.dtype else (0,), dtype=branch)
    return torch.empty_like(x), narrow, torch.empty_like(weight)


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
        return torch.ops.lmperf.rope(qkv, cos, sin).unbind(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, dq, dk, dv):
        return torch.ops.lmperf.rope_gradient(dq, dk, dv, *ctx.saved_tensors), None, None


class _AddedNorm(torch.autograd.Function):
    """`apply(x, branch, weight, eps)` -> x + branch, and its RMSNorm in the dtype of the branch.

    Both results have one backward pass, which adds the gradients of both uses of the sum. One
    operator makes both: of PyTorch's own, a cast that changes nothing makes torch.compile of torch
    2.11 lose the gradient of the sum.
    """

    @staticmethod
    def forward(ctx, x, branch, weight, eps):
        x, normed = torch.ops.lmperf.added_rms_norm(
            x.contiguous(), branch.contiguous(), weight, eps
        )
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.branch = eps, branch.dtype
        return x, normed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_x, grad_normed):
        grads = grad_normed.contiguous(), grad_x.contiguous()
        grad_x, grad_branch, grad_weight = torch.ops.lmperf.rms_norm_gradient(
            *ctx.saved_tensors, *grads, ctx.eps, ctx.branch
        )
        is_same = ctx.branch == grad_x.dtype
        return grad_x, grad_x if is_same else grad_branch, grad_weight, None


class FusedBlock(nn.Module):
    """A `Block` that shares the modules of another one; input and output are pairs.

    A pair is the residual stream [batch, seq_len, d_model] and a branch to add, of the same shape.
    """

    def __init__(self, block: Block):
        super().__init__()
        self.block = block

    def forward(self, stream: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        attention, feed_forward = self.block.attention, self.block.feed_forward
        x, normed = _added_norm(*stream, self.block.attention_norm)
        qkv = attention.qkv(normed).unflatten(-1, (3, attention.num_heads, -1))
        rotary = attention.rotary
        heads = (part.transpose(1, 2) for part in _RoPE.apply(qkv, rotary.cos, rotary.sin))
        mixed = attention.attention(*heads, causal=True)
        branch = attention.output(mixed.transpose(1, 2).flatten(-2))
        x, normed = _added_norm(x, branch, self.block.feed_forward_norm)
        return x, feed_forward.down(_SwiGLU.apply(feed_forward.gate_up(normed)))


def _added_norm(x: Tensor, branch: Tensor, norm: RMSNorm) -> tuple[Tensor, Tensor]:
    return _AddedNorm.apply(x, branch, norm.weight, norm.eps)


class _Opened(nn.Module):
    """An embedding whose output is the pair that fused blocks take."""

    def __init__(self, embedding: nn.Embedding):
        super().__init__()
        self.embedding = embedding

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x, branch = _without_branch(self.embedding(tokens))
        # Like the branches of the other blocks, which share a graph with the first one.
        return x, branch.requires_grad_(x.requires_grad)


class _Closed(nn.Module):
    """A norm that takes the pair of the last fused block."""

    def __init__(self, norm: RMSNorm):
        super().__init__()
        self.norm = norm

    def forward(self, stream: tuple[Tensor, Tensor]) -> Tensor:
        x, branch = stream
        return self.norm(x + branch)


class _Whole(nn.Module):
    """A fused block whose input and output are whole residual streams."""

    def __init__(self, block: FusedBlock):
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        x, branch = self.block(_without_branch(x))
        return x + branch


def _without_branch(x: Tensor) -> tuple[Tensor, Tensor]:
    """The pair of a residual stream and zeros."""
    device = x.device.type
    low = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if low else x.dtype
    return x, torch.zeros_like(x, dtype=dtype)


def with_fused_blocks(model: TransformerLM, whole: bool = False) -> TransformerLM:
    """A copy of the model with fused blocks; parameters and buffers are shared.

    whole: between blocks the residual stream is one tensor, so that a checkpoint of a block keeps
        one. Otherwise it is a pair.
    """
    twin = twin_of(model)
    blocks = map(FusedBlock, twin.blocks)
    if whole:
        blocks = map(_Whole, blocks)
    else:
        twin.embedding, twin.norm = _Opened(twin.embedding), _Closed(twin.norm)
    twin.blocks = nn.ModuleList(blocks)
    return twin
