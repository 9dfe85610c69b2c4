"""Linear layers that multiply by bf16 copies of their float32 weights.

Under autocast, PyTorch casts each weight to bf16 in every step, and its gradient back to float32.
Here the optimizer writes the copies while it updates the weights (see `FusedAdamW`), and the
gradients stay bf16, so a step casts neither. All values are those of autocast.

A copy is a leaf of autograd that hands its gradient over to the weight. If the graph began at the
float32 weight, `torch.compile` would cast the gradient to float32 in any case: it ignores
`grad_dtype`.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmperf.transformer.model import TransformerLM, replace_linear_layers


def with_copies(model: TransformerLM) -> dict[Tensor, Tensor]:
    """Replace the linear layers of the blocks in place; returns weight -> its bf16 copy.

    The copies are those of the current weights. Gradients of these weights are bf16 from now on,
    and those that exist are cleared.
    """
    replace_linear_layers(model, lambda layer: CopiedLinear(layer.weight))
    layers = [layer for layer in model.blocks.modules() if isinstance(layer, CopiedLinear)]
    return {layer.weight: layer.copy for layer in layers}


def operand_of(model: nn.Module, name: str) -> Tensor:
    """The leaf of autograd that has the gradient of a parameter: itself, or its copy if in use."""
    layer = model.get_submodule(name.rpartition(".")[0])
    return layer.operand if isinstance(layer, CopiedLinear) else model.get_parameter(name)


class CopiedLinear(nn.Linear):
    """x @ weight.T without bias, by the bf16 copy of the weight under bf16 autocast.

    Without autocast it multiplies by the weight itself. In both cases a backward pass leaves the
    gradient on the weight, in its `grad_dtype`, which is bf16 from here on.

    Attributes:
        copy: the weight in bf16, a buffer. Whoever changes the weight changes it as well.
    """

    def __init__(self, weight: nn.Parameter):
        super().__init__(weight.shape[1], weight.shape[0], bias=False, device="meta")
        weight.grad, weight.grad_dtype = None, torch.bfloat16
        self.weight = weight
        copy = weight.detach().bfloat16().requires_grad_()
        copy.register_post_accumulate_grad_hook(partial(_hand_over, weight))
        self.register_buffer("copy", copy, persistent=False)

    @property
    def operand(self) -> Tensor:
        """What x is multiplied by now: the copy under bf16 autocast, else the weight."""
        # Not of the weight: Dynamo fails on a parameter that has a gradient of another dtype.
        device = self.copy.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        return self.copy if low == torch.bfloat16 else self.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.operand)

    def _load_from_state_dict(self, *args, **options):
        """Copy the weight that is loaded."""
        super()._load_from_state_dict(*args, **options)
        with torch.no_grad():
            self.copy.copy_(self.weight)

    def _apply(self, fn, recurse=True):
        """Keep the copy in bf16: a float64 model has no use for a float64 copy."""
        super()._apply(fn, recurse)
        self.copy = self.copy.detach().bfloat16()
        return self


def _hand_over(weight: nn.Parameter, copy: Tensor) -> None:
    """Move the gradient of a copy to the weight."""
    if weight.grad is None:
        weight.grad = copy.grad.to(weight.grad_dtype)
    else:
        weight.grad += copy.grad
    copy.grad = None
