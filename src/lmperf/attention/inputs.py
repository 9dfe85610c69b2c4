"""Inputs that are other ones for every call, in the same memory, whose results are known.

A call that finds the inputs of an earlier one could return what it kept of it, and a reference for
every call would cost more than the call. So the inputs are one draw, turned by what attention is
exactly symmetric under, in every dtype:

    q and k times signs of the channels        the scores stay; dq and dk turn with them
    v and dO times other signs                 out and dv turn with these; dP stays
    the sequences in another order             every result in that order
    dO of a sequence times a factor            its dq, dk and dv times it: they are linear in dO

The factors, +-1, 2 and 4, are drawn once more when the forward has run, and none is what it was
before: gradients that were worked out in the forward are wrong, wherever it found dO.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Powers of two, so that no mantissa changes, and none below one: float16 has no digits to spare.
FACTORS = (1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_NAMES = ("q", "k", "v", "gradient")
_SCORES, _VALUES = 0, 1
_SIGNS = {
    **dict.fromkeys(("q", "k", "dq", "dk"), _SCORES),
    **dict.fromkeys(("v", "gradient", "out", "dv"), _VALUES),
}


class FreshInputs:
    """q, k, v, which require gradients, and the gradient of the output, [..., seq_len, d_head].

    What implementations see, `tensors`, is the draw itself until `freshen` is called.

    Args:
        shape: of each, [batch, heads, seq_len, d_head] or [batch, seq_len, d_head].
        dtype: in which they are stored.
        device: where they are.
        seed: of the generator that draws them, unit normal.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: str, seed: int):
        self._generator = torch.Generator(device).manual_seed(seed)
        drawn = torch.randn(4, *shape, generator=self._generator, device=device)
        self.drawn = tuple(t.to(dtype, copy=True) for t in drawn)
        *inputs, gradient = (t.clone() for t in self.drawn)
        self.tensors = (*(t.requires_grad_() for t in inputs), gradient)
        count = self.drawn[0][..., 0, 0].numel()
        self._signs = torch.ones((2, 1, shape[-1]), dtype=dtype, device=device)
        self._order = torch.arange(count, device=device)
        self._factors = torch.tensor(FACTORS, dtype=dtype, device=device)
        self._factor = torch.zeros((count, 1, 1), dtype=torch.long, device=device)

    @torch.no_grad()
    def freshen(self, seed: int) -> None:
        """Turns the inputs anew, in place; the next `freshen_gradient` follows from this seed too.

        Everything happens on the device, so that the host waits for nothing.
        """
        self._generator.manual_seed(seed)
        torch.randperm(len(self._order), generator=self._generator, out=self._order)
        self._signs.copy_(self._random(0, 2, self._signs.shape).mul_(2).sub_(1))
        for position in range(3):
            self._turn(position, self.tensors[position])
        self.freshen_gradient()

    @torch.no_grad()
    def freshen_gradient(self) -> None:
        """Another factor for the gradient of the output of every sequence, in place."""
        steps = self._random(1, len(FACTORS), self._factor.shape)
        self._factor.add_(steps).remainder_(len(FACTORS))
        self._turn(3, self.tensors[3])

    @torch.no_grad()
    def changed(self) -> list[str]:
        """The inputs, by name, that are not what was put there last."""
        expected = torch.empty_like(self.drawn[0])
        return [
            name
            for position, name in enumerate(_NAMES)
            if not torch.equal(self.tensors[position], self._turn(position, expected))
        ]

    @torch.no_grad()
    def turned_back(self, name: str, result: Tensor) -> Tensor:
        """A result of the present inputs (out, dq, dk or dv) as the draw would have given it.

        Returns result's shape; in float32 at least, where signs and powers of two are exact.
        """
        wide = result.float() if result.dtype.itemsize < 4 else result
        turned = wide.reshape(-1, *wide.shape[-2:]) * self._signs[_SIGNS[name]]
        if name != "out":
            turned /= self._factors[self._factor]
        return torch.empty_like(turned).index_copy_(0, self._order, turned).reshape(result.shape)

    def _turn(self, position: int, target: Tensor) -> Tensor:
        """Writes an input, by its position in `tensors`, as it is to be now."""
        name, drawn = _NAMES[position], self.drawn[position]
        sequences = target.detach().view(-1, *drawn.shape[-2:])
        torch.index_select(drawn.view_as(sequences), 0, self._order, out=sequences)
        sequences.mul_(self._signs[_SIGNS[name]])
        if name == "gradient":
            sequences.mul_(self._factors[self._factor])
        return target

    def _random(self, low: int, high: int, shape: Sequence[int]) -> Tensor:
        device = self._order.device
        return torch.randint(low, high, shape, generator=self._generator, device=device)
