"""Linear layers whose matmuls read float8 operands, in eager PyTorch.

They are what a train step with float8 matmuls is compared with: operands are rounded to float8 as
torchao's tensorwise recipe scales them (`torchao.float8`), and multiplied in float32. No device
with float8 units is needed.

Source: Micikevicius et al. 2022 (arXiv 2209.05433), E4M3 and E5M2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmperf.transformer.model import TransformerLM, replace_linear_layers, twin_of

# The tolerance of a step that rounds operands so.
TOLERANCE = "fp8_tensorwise"
# Activations and weights; gradients.
_OPERAND, _GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
_LEAST = 1e-12


def with_float8(model: TransformerLM) -> TransformerLM:
    """A copy of the model whose blocks have float8 linear layers; parameters are shared."""
    twin = twin_of(model)
    replace_linear_layers(twin, lambda layer: Float8Linear(layer.weight))
    return twin


class Float8Linear(nn.Module):
    """x @ weight.T without bias, whose three matmuls read float8 operands."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return _Float8Matmul.apply(x, self.weight)


class _Float8Matmul(torch.autograd.Function):
    """`apply(x [..., in], weight [out, in])` -> [..., out] in the dtype of x."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return (_rounded(x, _OPERAND) @ _rounded(weight, _OPERAND).T).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        rows = _rounded(grad.flatten(0, -2), _GRADIENT)
        grad_x = rows @ _rounded(weight, _OPERAND)
        grad_weight = rows.T @ _rounded(x.flatten(0, -2), _OPERAND)
        return grad_x.view(x.shape).to(x.dtype), grad_weight.to(weight.dtype)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x rounded to a float8 dtype with one scale for the whole tensor, in float32."""
    most = torch.finfo(dtype).max
    scale = (most / x.abs().max().double().clamp(min=_LEAST)).float()
    return (x.float() * scale).clamp(-most, most).to(dtype).float() / scale
