"""Random inputs of attention, redrawn in the same memory before every timed call.

An implementation that returns a cached result is therefore wrong, whatever the key of its cache. dO
is redrawn after the forward pass as well, so gradients computed during the forward pass are wrong
too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lmperf.attention.rounding import LARGEST_SCORE

_NAMES = ("q", "k", "v", "gradient")
_QUERY, _KEY, _GRADIENT = map(_NAMES.index, ("q", "k", "gradient"))

# Large scores: the first channel adds a constant to the scores of each kind of key. exp(96) is
# infinite in float32, exp(-96) is zero, and a constant changes no probability.
_OFFSET = 96.0
# The scores of a few keys are larger still (the tail), those of the first keys negative (the
# prefix): their probabilities are zero as soon as other keys are seen. Unit normal inputs add up to
# 8 to a score of the tail, which makes it LARGEST_SCORE.
_TAIL, _PREFIX = (LARGEST_SCORE - 8) / _OFFSET, -1.0
# Fewer tokens leave too few keys in the tail for gradients that are not zero.
LEAST_TOKENS = 32


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

    def freshen(self, seed: int, large_scores: bool = False) -> None:
        """Redraw q, k, v and dO in place; the seed also determines later draws of dO.

        large_scores: whether the first channel of q and k makes all scores large.
        """
        self._seed, self._gradients, self._large_scores = seed, 0, large_scores
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
        target.detach().normal_(generator=self._generator)
        if self._large_scores and position == _QUERY:
            # bfloat16 holds this value exactly, so every dtype multiplies it exactly.
            raw = torch.tensor(_OFFSET * target.shape[-1] ** 0.5).to(torch.bfloat16)
            target.detach()[..., 0] = float(raw)
        if self._large_scores and position == _KEY:
            target.detach()[..., 0] = self._offsets(target.shape[-2])
        return target.detach()

    def _offsets(self, tokens: int) -> Tensor:
        """The first channel of the keys [tokens]: what each score is times the offset."""
        offsets = torch.ones(tokens, device=self._generator.device)
        prefix, spacing = tokens // 4, max(2, min(16, tokens // 16))
        offsets[prefix + spacing // 2 :: spacing] = _TAIL
        offsets[:prefix] = _PREFIX
        return offsets
