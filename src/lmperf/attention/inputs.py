"""Inputs that are other ones for every call, in the same memory.

Each call has a draw of its own, which no implementation can have seen: what it kept of an earlier
call is wrong, whatever it was kept by. The gradient of the output is drawn once more when the
forward has run: gradients that were worked out in the forward are wrong, wherever it found dO.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_NAMES = ("q", "k", "v", "gradient")
_GRADIENT = _NAMES.index("gradient")


class FreshInputs:
    """q, k, v, which require gradients, and the gradient of the output, [..., seq_len, d_head].

    They are unit normal, and drawn on their device, so that the host waits for nothing.

    Args:
        shape: of each, [batch, heads, seq_len, d_head] or [batch, seq_len, d_head].
        dtype: in which they are stored.
        device: where they are.
        seed: of the first draw.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: str, seed: int):
        self._generator = torch.Generator(device)
        made = [torch.empty(tuple(shape), dtype=dtype, device=device) for _ in _NAMES]
        self.tensors = tuple(made)
        self.freshen(seed)
        for tensor in made[:_GRADIENT]:
            tensor.requires_grad_()

    def freshen(self, seed: int) -> None:
        """Draws all of them anew, in place; the gradients that follow depend on this seed, too."""
        self._seed, self._gradients = seed, 0
        for position in range(len(_NAMES)):
            self._draw(position, self.tensors[position])

    def freshen_gradient(self) -> None:
        """Another gradient of the output, in place."""
        self._gradients += 1
        self._draw(_GRADIENT, self.tensors[_GRADIENT])

    def changed(self) -> list[str]:
        """The inputs, by name, that are not what was put there last."""
        expected = torch.empty_like(self.tensors[_GRADIENT])
        return [
            name
            for position, name in enumerate(_NAMES)
            if not torch.equal(self.tensors[position], self._draw(position, expected))
        ]

    @torch.no_grad()
    def _draw(self, position: int, target: Tensor) -> Tensor:
        """Writes an input, by its position in `tensors`, as it is to be now."""
        which = position + self._gradients if position == _GRADIENT else position
        self._generator.manual_seed(self._seed * 2**16 + which)
        return target.detach().normal_(generator=self._generator)
