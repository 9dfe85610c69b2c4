"""Fused blocks whose matmuls have float8 operands, which the kernels between them store.

A kernel that computes the input of a linear layer also stores it in float8; bf16 stays for the
gradient of the weight. The gradient of a layer's output needs both as well. Autograd passes one
gradient for a tensor, so a layer has a second output, its slot: a float8 tensor without contents,
whose gradient is that of the first output, in float8. Whatever reads the output takes the slot as
well, and returns both gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmperf.transformer import block_kernels
from lmperf.transformer.float8_kernels import DTYPE
from lmperf.transformer.float8_linear import GRADIENT, INPUT, define
from lmperf.transformer.fused_blocks import LIBRARY
from lmperf.transformer.model import Block, RMSNorm, TransformerLM, twin_of


def _low(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, dtype=DTYPE, memory_format=torch.contiguous_format)


def _swiglu(gate_up, cells):
    low = gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2, dtype=DTYPE)
    return block_kernels.swiglu(gate_up, low, cells[INPUT]), low


def _swiglu_gradient(gate_up, grad_out, cells):
    low = _low(gate_up)
    return block_kernels.swiglu_gradient(gate_up, grad_out, low, cells[GRADIENT]), low


def _rope_gradient(dq, dk, dv, cos, sin, cells):
    batch, seq_len, heads, d_head = dq.shape
    low = dq.new_empty(batch, seq_len, 3, heads, d_head, dtype=DTYPE)
    return block_kernels.rope_gradient(dq, dk, dv, cos, sin, low, cells[GRADIENT]), low


def _added_rms_norm(x, branch, weight, eps, cells):
    low = _low(x)
    return *block_kernels.added_rms_norm(x, branch, weight, eps, low, cells[INPUT]), low


def _rms_norm_gradient(x, weight, grad_normed, grad_residual, eps, cells):
    low, grads = _low(x), (grad_normed, grad_residual)
    grad, _, grad_weight = block_kernels.rms_norm_gradient(
        x, weight, *grads, eps, x.dtype, low, cells[GRADIENT]
    )
    return grad, low, grad_weight


_OPERATORS = {
    "swiglu_float8": ("(Tensor gate_up, Tensor cells) -> (Tensor, Tensor)", _swiglu),
    "swiglu_gradient_float8": (
        "(Tensor gate_up, Tensor grad_out, Tensor cells) -> (Tensor, Tensor)",
        _swiglu_gradient,
    ),
    "rope_gradient_float8": (
        "(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, Tensor cells)"
        " -> (Tensor, Tensor)",
        _rope_gradient,
    ),
    "added_rms_norm_float8": (
        "(Tensor x, Tensor branch, Tensor weight, float eps, Tensor cells)"
        " -> (Tensor, Tensor, Tensor)",
        _added_rms_norm,
    ),
    "rms_norm_gradient_float8": (
        "(Tensor x, Tensor weight, Tensor grad_normed, Tensor grad_residual, float eps,"
        " Tensor cells) -> (Tensor, Tensor, Tensor)",
        _rms_norm_gradient,
    ),
}
define(LIBRARY, _OPERATORS)


@torch.library.register_fake("lmperf::swiglu_float8", lib=LIBRARY)
def _(gate_up, cells):
    out = gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)
    return out, _low(out)


@torch.library.register_fake("lmperf::swiglu_gradient_float8", lib=LIBRARY)
def _(gate_up, grad_out, cells):
    return torch.empty_like(gate_up), _low(gate_up)


@torch.library.register_fake("lmperf::rope_gradient_float8", lib=LIBRARY)
def _(dq, dk, dv, cos, sin, cells):
    batch, seq_len, heads, d_head = dq.shape
    grad = dq.new_empty(batch, seq_len, 3, heads, d_head)
    return grad, _low(grad)


@torch.library.register_fake("lmperf::added_rms_norm_float8", lib=LIBRARY)
def _(x, branch, weight, eps, cells):
    return torch.empty_like(x), torch.empty_like(branch), _low(x)


@torch.library.register_fake("lmperf::rms_norm_gradient_float8", lib=LIBRARY)
def _(x, weight, grad_normed, grad_residual, eps, cells):
    return torch.empty_like(x), _low(x), torch.empty_like(weight)


class _Linear(torch.autograd.Function):
    """`apply(x [..., in], low, weight, rows, columns, cells)` -> [..., out], and its slot.

    low: x in float8. Otherwise see `float8_linear.Operands`.
    """

    @staticmethod
    def forward(ctx, x, low, weight, rows, columns, cells):
        ctx.save_for_backward(x, columns, cells)
        y = torch.ops.lmperf.float8_matmul(low.flatten(0, -2), rows, cells, INPUT)
        y = y.view(*x.shape[:-1], len(rows))
        return y, _low(y)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, low):
        x, columns, cells = ctx.saved_tensors
        grad, low = (part.flatten(0, -2) for part in (grad, low))
        grad_x = torch.ops.lmperf.float8_matmul(low, columns, cells, GRADIENT)
        grad_weight = grad.T @ x.flatten(0, -2)
        return grad_x.view(x.shape), None, grad_weight, None, None, None


class _SwiGLU(torch.autograd.Function):
    """`apply(gate_up, slot, cells of gate_up, cells of down)` -> silu(gate) * up, and in float8."""

    @staticmethod
    def forward(ctx, gate_up, slot, before, after):
        ctx.save_for_backward(gate_up, before)
        out, low = torch.ops.lmperf.swiglu_float8(gate_up, after)
        ctx.mark_non_differentiable(low)
        return out, low

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out, _):
        gate_up, before = ctx.saved_tensors
        grad, low = torch.ops.lmperf.swiglu_gradient_float8(gate_up, grad_out.contiguous(), before)
        return grad, low, None, None


class _RoPE(torch.autograd.Function):
    """`apply(qkv [b, n, 3 h d], slot, cos, sin, cells, h)` -> three of [b, n, h, d]."""

    @staticmethod
    def forward(ctx, qkv, slot, cos, sin, cells, heads):
        ctx.save_for_backward(cos, sin, cells)
        return torch.ops.lmperf.rope(qkv.unflatten(-1, (3, heads, -1)), cos, sin).unbind(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, dq, dk, dv):
        parts = torch.ops.lmperf.rope_gradient_float8(dq, dk, dv, *ctx.saved_tensors)
        grad, low = (part.flatten(2) for part in parts)
        return grad, low, None, None, None, None


class _AddedNorm(torch.autograd.Function):
    """`apply(x, branch, slot, weight, eps, before, after)` -> x + branch, its norm, and in float8.

    before, after: cells of the layer that made the branch, and of the one that reads the norm.
    """

    @staticmethod
    def forward(ctx, x, branch, slot, weight, eps, before, after):
        x, normed, low = torch.ops.lmperf.added_rms_norm_float8(
            x.contiguous(), branch.contiguous(), weight, eps, after
        )
        ctx.save_for_backward(x, weight, before)
        ctx.eps = eps
        ctx.mark_non_differentiable(low)
        return x, normed, low

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_x, grad_normed, _):
        x, weight, before = ctx.saved_tensors
        grad, low, grad_weight = torch.ops.lmperf.rms_norm_gradient_float8(
            x, weight, grad_normed.contiguous(), grad_x.contiguous(), ctx.eps, before
        )
        return grad, grad, low, grad_weight, None, None, None


class _Closing(torch.autograd.Function):
    """`apply(branch, slot, cells)` -> branch, whose gradient is cast to float8."""

    @staticmethod
    def forward(ctx, branch, slot, cells):
        ctx.save_for_backward(cells)
        return branch.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (cells,) = ctx.saved_tensors
        grad = grad.contiguous()
        return grad, torch.ops.lmperf.float8_cast(grad, cells, GRADIENT), None


class Stream(NamedTuple):
    """The residual stream [batch, seq_len, d_model] between blocks, and a branch to add.

    slot: of the branch. cells: of the layer that made the branch.
    """

    x: Tensor
    branch: Tensor
    slot: Tensor
    cells: Tensor


class Float8Block(nn.Module):
    """A `Block` of a model with `Float8Weights`, which shares its modules."""

    def __init__(self, block: Block):
        super().__init__()
        self.block = block

    def forward(self, stream: Stream) -> Stream:
        attention, feed_forward = self.block.attention, self.block.feed_forward
        qkv, output = attention.qkv, attention.output
        gate_up, down = feed_forward.gate_up, feed_forward.down
        rotary, norm = attention.rotary, self.block.feed_forward_norm
        x, normed, low = _added_norm(stream, self.block.attention_norm, qkv)
        heads = _RoPE.apply(
            *_linear(normed, low, qkv), rotary.cos, rotary.sin, _cells(qkv), attention.num_heads
        )
        mixed = attention.attention(*(part.transpose(1, 2) for part in heads), causal=True)
        mixed = mixed.transpose(1, 2).flatten(-2).contiguous()
        low = torch.ops.lmperf.float8_cast(mixed.detach(), _cells(output), INPUT)
        added = Stream(x, *_linear(mixed, low, output), _cells(output))
        x, normed, low = _added_norm(added, norm, gate_up)
        product, low = _SwiGLU.apply(*_linear(normed, low, gate_up), _cells(gate_up), _cells(down))
        return Stream(x, *_linear(product, low, down), _cells(down))


def _cells(layer: nn.Linear) -> Tensor:
    return layer.float8.cells


def _linear(x: Tensor, low: Tensor, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """The output of a layer for x, in float8 low, and the output's slot."""
    operands = layer.float8
    return _Linear.apply(x, low, layer.weight, operands.rows, operands.columns, operands.cells)


def _added_norm(stream: Stream, norm: RMSNorm, after: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """The stream with its branch, its norm, and the norm in float8 for a layer."""
    x, branch, slot, before = stream
    return _AddedNorm.apply(x, branch, slot, norm.weight, norm.eps, before, _cells(after))


class _Opened(nn.Module):
    """An embedding whose output is the stream that float8 blocks take."""

    def __init__(self, embedding: nn.Embedding, cells: Tensor):
        super().__init__()
        self.embedding, self.cells = embedding, [cells]

    def forward(self, tokens: Tensor) -> Stream:
        x = self.embedding(tokens)
        branch, slot = torch.zeros_like(x), _low(x)
        # Like the branches of the other blocks, which share a graph with the first one.
        for tensor in (branch, slot):
            tensor.requires_grad_(x.requires_grad)
        return Stream(x, branch, slot, *self.cells)


class _Closed(nn.Module):
    """A norm that takes the stream of the last float8 block."""

    def __init__(self, norm: RMSNorm):
        super().__init__()
        self.norm = norm

    def forward(self, stream: Stream) -> Tensor:
        x, branch, slot, cells = stream
        return self.norm(x + _Closing.apply(branch, slot, cells))


def with_float8_blocks(model: TransformerLM) -> TransformerLM:
    """A copy of a model that has `Float8Weights`, with float8 blocks; parameters are shared."""
    twin = twin_of(model)
    twin.embedding = _Opened(twin.embedding, twin.float8.unused)
    twin.norm = _Closed(twin.norm)
    twin.blocks = nn.ModuleList(map(Float8Block, twin.blocks))
    return twin
