"""Random inputs of md_lrpe_cosine, redrawn in the same memory before every timed call.

An implementation that returns a cached result, or uses cached cosines, is therefore wrong. dOut is
drawn after the forward pass.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

_X, _THETA, _GRADIENT = range(3)


class FreshInputs:
    """X and dOut, standard normal, and theta.

    theta contains the frequencies of rotary embeddings, 10000^(-c / e), each times a random factor
    from 0.5 to 1.5 as if it had been learned.

    Args:
        sizes: batch, heads, tokens and d, the channels of X per head.
        axes: the number of axes of the positions.
        dtype: storage dtype of X and dOut; theta is in float32.
        device: where the tensors are.
        seed: seed of the first draw.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int, int],
        axes: int,
        dtype: torch.dtype,
        device: str,
        seed: int,
    ):
        self._sizes, self._axes, self._dtype = sizes, axes, dtype
        self._device, self._seed, self._gradients = device, seed, 0

    @property
    def width(self) -> int:
        """e, the channels per axis."""
        return -(-self._sizes[-1] // self._axes)

    @property
    def drawn(self) -> int:
        """The seed from which X and theta were drawn last."""
        return self._seed

    @cached_property
    def x(self) -> Tensor:
        """X [batch, heads, tokens, d], which requires a gradient."""
        return self._normal(self._empty(self._sizes[-1]), _X).requires_grad_()

    @cached_property
    def theta(self) -> Tensor:
        """theta [heads, e], in float32."""
        return self._frequencies()

    @torch.no_grad()
    def freshen(self, seed: int) -> None:
        """Redraw X and theta in place; the seed also determines later draws of dOut."""
        self._seed, self._gradients = seed, 0
        self._normal(self.x.detach(), _X)
        self.theta.copy_(self._frequencies())

    @torch.no_grad()
    def fresh_gradient(self) -> Tensor:
        """Draw the next dOut [batch, heads, tokens, 2 d], in new memory."""
        self._gradients += 1
        return self.gradient()

    def gradient(self) -> Tensor:
        """The current dOut again, in new memory."""
        return self._normal(self._empty(2 * self._sizes[-1]), _GRADIENT + self._gradients)

    @torch.no_grad()
    def changed(self) -> list[str]:
        """Names of the inputs that were modified since they were last drawn."""
        same = {
            "x": torch.equal(self.x, self._normal(self._empty(self._sizes[-1]), _X)),
            "theta": torch.equal(self.theta, self._frequencies()),
        }
        return [name for name, equal in same.items() if not equal]

    def _frequencies(self) -> Tensor:
        channels = torch.arange(self.width, device=self._device)
        shape, generator = (self._sizes[1], self.width), self._generator_of(_THETA)
        factors = torch.rand(shape, generator=generator, device=self._device)
        return factors.add_(0.5) * 10000.0 ** (-channels / self.width)

    def _empty(self, width: int) -> Tensor:
        *leading, _ = self._sizes
        return torch.empty((*leading, width), dtype=self._dtype, device=self._device)

    def _normal(self, target: Tensor, which: int) -> Tensor:
        return target.normal_(generator=self._generator_of(which))

    def _generator_of(self, which: int) -> torch.Generator:
        return torch.Generator(self._device).manual_seed(self._seed * 2**16 + which)
