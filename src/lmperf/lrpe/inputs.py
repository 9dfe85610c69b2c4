"""Inputs that are other ones for every call, in the same memory.

X and theta are drawn for each call, so that cosines and results that were kept are wrong. The
gradient of the output is drawn when the forward has run.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

_X, _THETA, _GRADIENT = range(3)


class FreshInputs:
    """X, theta and gradients of the output, unit normal but for theta.

    theta holds the frequencies of rotary embeddings, 10000^(-c / e), times a factor from 0.5 to 1.5
    of each head and channel, as if they had been learned.

    Args:
        sizes: batch, heads, tokens and d, the channels of X a head.
        axes: how many axes the positions have.
        dtype: in which X and the gradient are stored; theta is in float32.
        device: where they are.
        seed: of the first draw.
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
        """e, the channels of an axis."""
        return -(-self._sizes[-1] // self._axes)

    @property
    def drawn(self) -> int:
        """The seed of the present X and theta."""
        return self._seed

    @cached_property
    def x(self) -> Tensor:
        """[batch, heads, tokens, d], which requires a gradient."""
        return self._normal(self._empty(self._sizes[-1]), _X).requires_grad_()

    @cached_property
    def theta(self) -> Tensor:
        """[heads, e] in float32."""
        return self._frequencies()

    @torch.no_grad()
    def freshen(self, seed: int) -> None:
        """Draws X and theta anew, in place; the gradients that follow depend on this seed, too."""
        self._seed, self._gradients = seed, 0
        self._normal(self.x.detach(), _X)
        self.theta.copy_(self._frequencies())

    @torch.no_grad()
    def fresh_gradient(self) -> Tensor:
        """A gradient of the output [batch, heads, tokens, 2 d] like none before, in new memory."""
        self._gradients += 1
        return self.gradient()

    def gradient(self) -> Tensor:
        """The last `fresh_gradient` once more."""
        return self._normal(self._empty(2 * self._sizes[-1]), _GRADIENT + self._gradients)

    @torch.no_grad()
    def changed(self) -> list[str]:
        """The inputs, by name, that are not what was put there last."""
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
