"""Inputs that are other ones for every call, in the same memory, whose cosines are known.

X is one draw times new signs of every channel of every head. Each theta changes its sign by chance:
its cosines stay and its sines change theirs, exactly, so that the float64 angles of the draw serve
for every call, and cosines that were kept from the last call do not. The gradient of the output is
its draw times signs of channels and a factor of +-1, 2 or 4 of each head, taken when the forward
has run; no factor is what it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from lmperf.attention.inputs import FACTORS

_X, _GRADIENT, _THETA = range(3)


class FreshInputs:
    """X, theta and gradients of the output, as drawn until `freshen` is called.

    theta holds the frequencies of rotary embeddings, 10000^(-c / e), times a factor from 0.5 to 1.5
    of each head and channel, as if they had been learned.

    Args:
        sizes: batch, heads, tokens and d, the channels of X a head.
        axes: how many axes the positions have.
        dtype: in which X and the gradient are stored; theta is in float32.
        device: where they are.
        seed: of the generators that draw them, one for each, so that none depends on another.
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
        self._device, self._seed = device, seed
        batch, heads, _, d = sizes
        self._generator = self._generator_of(3)
        ones = torch.ones((batch, heads, 1, 2 * d), dtype=dtype, device=device)
        self._signs, self._gradient_signs = ones[..., :d].clone(), ones
        self._theta_signs = torch.ones((heads, self.width), device=device)
        self._factors = torch.tensor(FACTORS, dtype=dtype, device=device)
        self._factor = torch.zeros((batch, heads, 1, 1), dtype=torch.long, device=device)

    @property
    def width(self) -> int:
        """e, the channels of an axis."""
        return -(-self._sizes[-1] // self._axes)

    @cached_property
    def x(self) -> Tensor:
        """[batch, heads, tokens, d], which requires a gradient."""
        return self._drawn_x.clone().requires_grad_()

    @cached_property
    def theta(self) -> Tensor:
        """[heads, e] in float32."""
        return self.drawn_theta.clone()

    @cached_property
    def drawn_theta(self) -> Tensor:
        channels = torch.arange(self.width, device=self._device)
        shape = self._theta_signs.shape
        factors = torch.rand(shape, generator=self._generator_of(_THETA), device=self._device)
        return factors.add_(0.5) * 10000.0 ** (-channels / self.width)

    @cached_property
    def drawn_gradient(self) -> Tensor:
        """The gradient of the output as drawn, [batch, heads, tokens, 2 d]."""
        return self._normal(2 * self._sizes[-1], _GRADIENT)

    @cached_property
    def _drawn_x(self) -> Tensor:
        return self._normal(self._sizes[-1], _X)

    @torch.no_grad()
    def freshen(self, seed: int) -> None:
        """Turns X and theta anew, in place; the next gradient follows from this seed too."""
        self._generator.manual_seed(seed)
        for signs in (self._signs, self._theta_signs):
            self._draw_signs(signs)
        torch.mul(self._drawn_x, self._signs, out=self.x.detach())
        torch.mul(self.drawn_theta, self._theta_signs, out=self.theta)

    @torch.no_grad()
    def fresh_gradient(self) -> Tensor:
        """A gradient of the output [batch, heads, tokens, 2 d] like none before, in new memory."""
        d = self._sizes[-1]
        self._draw_signs(self._gradient_signs[..., :d])
        self._gradient_signs[..., d:] = self._gradient_signs[..., :d]
        steps = self._random(1, len(FACTORS), self._factor.shape)
        self._factor.add_(steps).remainder_(len(FACTORS))
        self._gradient_signs.mul_(self._factors[self._factor])
        return self.drawn_gradient * self._gradient_signs

    def gradient(self, sequence: int) -> Tensor:
        """One sequence of the last `fresh_gradient`, [heads, tokens, 2 d]."""
        return self.drawn_gradient[sequence] * self._gradient_signs[sequence]

    @torch.no_grad()
    def changed(self) -> list[str]:
        """The inputs, by name, that are not what was put there last."""
        same = {
            "x": all(map(torch.equal, self.x, self._expected_x())),
            "theta": torch.equal(self.theta, self.drawn_theta * self._theta_signs),
        }
        return [name for name, equal in same.items() if not equal]

    def _expected_x(self):
        pairs = zip(self._drawn_x, self._signs, strict=True)
        return (drawn * signs for drawn, signs in pairs)

    def sine_signs(self) -> Tensor:
        """Signs of the sines of every channel beside those of the drawn theta, [heads, 1, d]."""
        channels = torch.arange(self._sizes[-1], device=self._device) % self.width
        return self._theta_signs[:, None, channels]

    def _normal(self, width: int, which: int) -> Tensor:
        *leading, _ = self._sizes
        drawn = torch.empty((*leading, width), dtype=self._dtype, device=self._device)
        return drawn.normal_(generator=self._generator_of(which))

    def _generator_of(self, which: int) -> torch.Generator:
        return torch.Generator(self._device).manual_seed(4 * self._seed + which)

    def _draw_signs(self, signs: Tensor) -> None:
        signs.copy_(self._random(0, 2, signs.shape).mul_(2).sub_(1))

    def _random(self, low: int, high: int, shape: Sequence[int]) -> Tensor:
        return torch.randint(low, high, shape, generator=self._generator, device=self._device)
