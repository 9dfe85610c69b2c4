"""Linear layers whose matmuls read float8 operands, in eager PyTorch.

They are what a train step with float8 matmuls is compared with: operands are rounded to float8 as a
recipe scales them, and multiplied in float32. No device with float8 units is needed.

Source: Micikevicius et al. 2022 (arXiv 2209.05433), E4M3 and E5M2; the recipes are those of torchao
(`torchao.float8`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmperf.transformer.model import TransformerLM, replace_linear_layers, twin_of

_LEAST = 1e-12


@dataclass(frozen=True)
class Recipe:
    """How operands become float8.

    Attributes:
        gradient: float8 dtype of gradients; activations and weights are E4M3.
        rowwise: a scale for each row of a matmul's operand, rounded down to a power of two; else
            one scale for each tensor.
    """

    gradient: torch.dtype
    rowwise: bool


RECIPES = {
    "fp8_tensorwise": Recipe(torch.float8_e5m2, rowwise=False),
    "fp8_rowwise": Recipe(torch.float8_e4m3fn, rowwise=True),
}


def with_float8(model: TransformerLM, recipe: Recipe) -> TransformerLM:
    """A copy of the model whose blocks have float8 linear layers; parameters are shared."""
    twin = twin_of(model)
    replace_linear_layers(twin, lambda layer: Float8Linear(layer.weight, recipe))
    return twin


class Float8Linear(nn.Module):
    """x @ weight.T without bias, whose three matmuls read float8 operands."""

    def __init__(self, weight: nn.Parameter, recipe: Recipe):
        super().__init__()
        self.weight, self._recipe = weight, recipe

    def forward(self, x: Tensor) -> Tensor:
        return _Float8Matmul.apply(x, self.weight, self._recipe)


class _Float8Matmul(torch.autograd.Function):
    """`apply(x [..., in], weight [out, in], recipe)` -> [..., out] in the dtype of x."""

    @staticmethod
    def forward(ctx, x, weight, recipe):
        ctx.save_for_backward(x, weight)
        ctx.recipe = recipe
        left, right = (_rounded(t, torch.float8_e4m3fn, -1, recipe) for t in (x, weight))
        return (left @ right.T).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        recipe, e4m3 = ctx.recipe, torch.float8_e4m3fn
        rows, tokens = grad.flatten(0, -2), x.flatten(0, -2)
        grad_x = _rounded(rows, recipe.gradient, -1, recipe) @ _rounded(weight, e4m3, 0, recipe)
        grad_weight = _rounded(rows, recipe.gradient, 0, recipe).T @ _rounded(
            tokens, e4m3, 0, recipe
        )
        return grad_x.view(x.shape).to(x.dtype), grad_weight.to(weight.dtype), None


def _rounded(x: Tensor, dtype: torch.dtype, along: int, recipe: Recipe) -> Tensor:
    """x rounded to a scaled float8 dtype, in float32.

    along: the axis that the matmul sums over, along which a rowwise scale is constant.
    """
    most = torch.finfo(dtype).max
    largest = x.abs().amax(dim=along, keepdim=True) if recipe.rowwise else x.abs().max()
    scale = (most / largest.double().clamp(min=_LEAST)).float()
    if recipe.rowwise:
        scale = torch.exp2(torch.floor(torch.log2(scale)))
    return (x.float() * scale).clamp(-most, most).to(dtype).float() / scale
