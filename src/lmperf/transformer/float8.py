"""Linear layers whose matmuls read float8 operands, in eager PyTorch.

They are what a train step with float8 matmuls is compared with: operands are rounded to float8 with
a scale for each tensor, as torchao's tensorwise recipe does (`torchao.float8`), and multiplied in
float32. No device with float8 units is needed.

Source: Micikevicius et al. 2022 (arXiv 2209.05433), E4M3 and E5M2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmperf.transformer.model import TransformerLM, replace_linear_layers, twin_of

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class Recipe(NamedTuple):
    """Which operands of a linear layer's matmuls are rounded to float8.

    Weights are, and inputs in the forward pass.

    gradient: the dtype of the output's gradient. in_weight_gradient: whether the two operands of
    the weight's gradient are rounded.
    """

    gradient: torch.dtype
    in_weight_gradient: bool


# The tolerance of a step -> what it rounds: torchao's, and that of `float8_linear`.
RECIPES = {"fp8_tensorwise": Recipe(_E5M2, True), "fp8_graph": Recipe(_E4M3, False)}
_LEAST = 1e-12


def with_float8(model: TransformerLM, tolerance: str) -> TransformerLM:
    """A copy of the model whose blocks have float8 linear layers; parameters are shared.

    tolerance: key of `RECIPES`.
    """
    twin, recipe = twin_of(model), RECIPES[tolerance]
    replace_linear_layers(twin, lambda layer: Float8Linear(layer.weight, recipe))
    return twin


class Float8Linear(nn.Module):
    """x @ weight.T without bias, whose matmuls read float8 operands."""

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
        return (_rounded(x, _E4M3) @ _rounded(weight, _E4M3).T).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad, rows = grad.flatten(0, -2), x.flatten(0, -2)
        low = _rounded(grad, ctx.recipe.gradient)
        grad_x = low @ _rounded(weight, _E4M3)
        if ctx.recipe.in_weight_gradient:
            grad_weight = low.T @ _rounded(rows, _E4M3)
        else:
            grad_weight = grad.float().T @ rows.float()
        return grad_x.view(x.shape).to(x.dtype), grad_weight.to(weight.dtype), None


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x rounded to a float8 dtype with one scale for the whole tensor, in float32."""
    most = torch.finfo(dtype).max
    scale = (most / x.abs().max().double().clamp(min=_LEAST)).float()
    return (x.float() * scale).clamp(-most, most).to(dtype).float() / scale
