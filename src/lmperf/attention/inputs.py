"""Random inputs of attention, redrawn in the same memory before every timed call.

An implementation that returns a cached result is therefore wrong, whatever the key of its cache. dO
is redrawn after the forward pass as well, so gradients computed during the forward pass are wrong
too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_NAMES = ("q", "k", "v", "gradient")
_GRADIENT = _NAMES.index("gradient")


class FreshInputs:
    """q, k, v, which require gradients, and dO, standard normal and drawn on the device.

    Args:
        shape: of each tensor, [batch, heads, seq_len, d_head] or [batch, seq_len, d_head].
        dtype: storage dtype of the tensors.
        device: where the tensors are.
        seed: seed of the first draw.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: str, seed: int):
        self._generator = torch.Generator(device)
        made = [torch.empty(tuple(shape), dtype=dtype, device=device) for _ in _NAMES]
        self.tensors = tuple(made)
        self.freshen(seed)
        for tensor in made[:_GRADIENT]:
            tensor.requires_grad_()

    def freshen(self, seed: int) -> None:
        """Redraw q, k, v and dO in place; the seed also determines later draws of dO."""
        self._seed, self._gradients = seed, 0
        for position in range(len(_NAMES)):
            self._draw(position, self.tensors[position])

    def freshen_gradient(self) -> None:
        """Redraw dO in place."""
        self._gradients += 1
        self._draw(_GRADIENT, self.tensors[_GRADIENT])

    def changed(self) -> list[str]:
        """Names of the inputs that were modified since they were last drawn."""
        expected = torch.empty_like(self.tensors[_GRADIENT])
        return [
            name
            for position, name in enumerate(_NAMES)
            if not torch.equal(self.tensors[position], self._draw(position, expected))
        ]

    @torch.no_grad()
    def _draw(self, position: int, target: Tensor) -> Tensor:
        """Fill `target` with the values last drawn for `tensors[position]`, from their seed."""
        which = position + self._gradients if position == _GRADIENT else position
        self._generator.manual_seed(self._seed * 2**16 + which)
        return target.detach().normal_(generator=self._generator)
