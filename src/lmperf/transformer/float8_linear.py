"""Linear layers that multiply in float8 (E4M3), for weights in bf16.

The product with the weight in the forward pass and the gradient of the input have float8 operands.
The gradient of the weight has bf16 operands: it needs both of them transposed. A tensor has one
scale, from the step before (`float8_kernels`). The optimizer's hooks set the scales and write the
weights in float8, row-major and transposed, since `torch._scaled_mm` reads rows of both operands.

In the first step there is none before it, and none after weights were loaded: `measure_scales`
makes a pass in bf16. Scales are not saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor, nn

from lmperf.benchmark import Unsupported
from lmperf.transformer import float8_kernels
from lmperf.transformer.float8_kernels import CELL, DTYPE, cast_weights, next_scales
from lmperf.transformer.model import TransformerLM

# The numbers of a layer's cells.
INPUT, WEIGHT, GRADIENT = range(3)
_GREATEST = 2

_LIBRARY = torch.library.Library("lmperf", "FRAGMENT")


def _float8_matmul(left: Tensor, right: Tensor, cells: Tensor, number: int) -> Tensor:
    """left [rows, k] @ right.T [k, n] in bf16, with fast accumulation; both float8.

    number: of the cell of left; right has that of the weight.
    """
    return torch._scaled_mm(
        left,
        right.T,
        scale_a=cells[number, 0],
        scale_b=cells[WEIGHT, 0],
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def define(library: torch.library.Library, operators: Mapping[str, tuple[str, Callable]]) -> None:
    """Define operators of a library, for GPUs and CPUs; operators: name -> schema, function."""
    for name, (schema, function) in operators.items():
        library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in ("CUDA", "CPU"):
            library.impl(name, function, device)


_OPERATORS = {
    "float8_cast": ("(Tensor x, Tensor cells, int number) -> Tensor", float8_kernels.float8_cast),
    "float8_matmul": (
        "(Tensor left, Tensor right, Tensor cells, int number) -> Tensor",
        _float8_matmul,
    ),
}
define(_LIBRARY, _OPERATORS)


@torch.library.register_fake("lmperf::float8_cast", lib=_LIBRARY)
def _(x, cells, number):
    return torch.empty_like(x, dtype=DTYPE)


@torch.library.register_fake("lmperf::float8_matmul", lib=_LIBRARY)
def _(left, right, cells, number):
    return left.new_empty(left.shape[0], right.shape[0], dtype=torch.bfloat16)


class Operands:
    """What a linear layer multiplies by in float8. Copies of a model share it.

    Attributes:
        weight: the layer's parameter, [out, in].
        rows, columns: the weight in float8, [out, in], and transposed, [in, out].
        cells: of input, weight and the gradient of the output, [3, CELL], float32.
    """

    def __init__(self, weight: nn.Parameter, cells: Tensor):
        self.weight, self.cells = weight, cells
        self.rows = torch.empty_like(weight, dtype=DTYPE, requires_grad=False)
        self.columns = self.rows.new_empty(weight.shape[::-1])

    def __deepcopy__(self, memo: dict) -> Operands:
        return self


class Float8Weights:
    """The operands of all linear layers of a model's blocks. Copies of a model share it.

    It stands on the model as `float8`, and an `Operands` on each of the layers.

    Attributes:
        unused: cells of no layer, for a tensor that nothing multiplies.
        are_set: whether there are scales, and weights in float8, of the model's weights.

    Raises:
        Unsupported: the model's device has no float8 matmuls.
    """

    def __init__(self, model: TransformerLM):
        layers = linear_layers(model)
        device = next(model.parameters()).device
        _require_float8(device)
        self._cells = torch.zeros(len(layers) + 1, 3, CELL, device=device)
        self._cells[..., :_GREATEST] = 1
        self.unused = self._cells[-1]
        self._operands = []
        for layer, cells in zip(layers, self._cells[:-1], strict=True):
            layer.float8 = Operands(layer.weight, cells)
            self._operands.append(layer.float8)
        model.float8 = self
        self.are_set = False
        model.register_load_state_dict_post_hook(lambda *_: setattr(self, "are_set", False))

    def set_scales(self) -> None:
        """Set all scales by the greatest magnitudes since the last call; cast the weights next."""
        next_scales(self._cells)

    @torch.no_grad()
    def cast_weights(self) -> None:
        """Write the weights in float8 by the scales of now."""
        cast_weights([(of.weight, of.rows, of.columns, of.cells[WEIGHT]) for of in self._operands])

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the optimizer set scales and cast weights in each of its steps."""
        optimizer.register_step_pre_hook(lambda *_: self.set_scales())
        optimizer.register_step_post_hook(lambda *_: self.cast_weights())

    def __deepcopy__(self, memo: dict) -> Float8Weights:
        return self


def _require_float8(device: torch.device) -> None:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < (8, 9):
            raise Unsupported(f"float8 matmuls need a GPU of capability 8.9, not {major}.{minor}")
    elif not triton.knobs.runtime.interpret:
        raise Unsupported(f"float8 matmuls need a GPU; the model is on {device}")


def linear_layers(model: TransformerLM) -> list[nn.Linear]:
    """The linear layers of the blocks."""
    return [layer for layer in model.blocks.modules() if isinstance(layer, nn.Linear)]


def measure_scales(
    model: TransformerLM, parameters: Iterable[Tensor], loss: Callable[[], Tensor]
) -> None:
    """Set the scales by a forward and a backward pass in bf16, which is not compiled.

    model: whose layers multiply in bf16, with `Float8Weights`. loss: of the model; its gradients
    with respect to the parameters are not kept.
    """
    with ExitStack() as stack:
        for layer in linear_layers(model):
            _raise(layer.float8.cells, WEIGHT, layer.weight)
            stack.callback(layer.register_forward_hook(_measure).remove)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.enable_grad())
        torch.autograd.grad(loss(), list(parameters))
    model.float8.set_scales()
    model.float8.cast_weights()
    model.float8.are_set = True


def _measure(layer: nn.Linear, inputs: tuple[Tensor], output: Tensor) -> None:
    """Raise the greatest magnitudes of a layer's input and of the gradient of its output."""
    cells: Any = layer.float8.cells
    _raise(cells, INPUT, inputs[0])
    output.register_hook(partial(_raise, cells, GRADIENT))


def _raise(cells: Tensor, number: int, x: Tensor) -> None:
    greatest = x.detach().abs().max()
    cells[number, _GREATEST] = torch.maximum(cells[number, _GREATEST], greatest)
