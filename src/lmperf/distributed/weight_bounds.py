"""Compares weights after some steps on several ranks with those of one process.

A tensor is compared by blocks of elements. Of a large tensor, blocks at equal distances are kept:
what can go wrong between ranks (a bucket, a shard, a stale weight) is larger than the distance.

The bound of a weight's error, relative to its change in all steps, has two parts:

Storage. Each step rounds a weight of size p to float32, and the change c shows it: an error of at
most u p / c for each step, with u = 2^-24.

Gradients. One process adds the gradients of the same parts of the batch that the ranks compute with
the same kernels, so that two things may differ.

- The order of sums: the ranks' gradients in the reduction, and in backward kernels that add with
  atomics. In float32 this is what `explained_by_rounding` allows for a gradient: a running sum of K
  terms has the error 0.29 u sqrt(K), and blocks propagate it by sqrt(2 layers).
- Under autocast, an intermediate result that differs by a relative d before it is rounded to bf16
  is rounded to the next number, at a distance of 2 u_16, with a probability of d / 2 u_16: an RMS
  error of sqrt(2 u_16 d), far more than d. The next rounding makes sqrt(2 u_16 d) of that, and so
  on. A block has ten roundings, so that the smallest difference, such as the order of sums in a
  backward kernel, soon is one of u_16 = 2^-8, as between any two runs in bf16. It takes the place
  of u. Where all kernels add in a fixed order there is no difference at all.

The optimizer enlarges a relative error of the gradient by at most max(1, g / eps): AdamW's update
g / (|g| + eps) has a derivative of at most 1 / eps, and its epsilon in the gate is the median size
of the gradients.

Two errors are compared with this bound. That of the worst block finds a fault in one place, such as
a bucket that is not reduced: an error of about one, so that the bound may be as large as 0.4. That
of the whole weight, in which rounding errors of many blocks cancel, finds a small fault everywhere:
a weight that misses one of the five steps has an error of a fifth, so that the bound is at most
0.15.

FSDP2 gathers the norms of a block in bf16 as well (tolerance `rounded_norms`): their weights are
rounded from the second step on, which is one more rounding of the activations in every block. A
whole batch in a single process (tolerance `whole_batch`) is compared with its sequences one by one:
other shapes have other kernels, and bf16 gradients of each part are rounded before the sum. Both
may have a larger error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from lmperf.attention.accuracy import UNIT_ROUNDOFF
from lmperf.benchmark import STRICT
from lmperf.transformer.weights import error_of, rms, sample

WHOLE_BATCH = "whole_batch"
_FLOAT32 = UNIT_ROUNDOFF["float32"]
# As for gradients in `lmperf.transformer.model_accuracy`.
_GRADIENTS_ALLOWED = 12.0
# The largest bound of a block, and of a whole weight by tolerance.
_MOST_OF_BLOCK = 0.4
_MOST = {STRICT: 0.15, "rounded_norms": _MOST_OF_BLOCK, WHOLE_BATCH: _MOST_OF_BLOCK}


@dataclass(frozen=True)
class Expected:
    """Weights of one process after some steps, and what bounds their error.

    Attributes:
        weights: name -> `sample` of the weight.
        changes: name -> `sample` of the weight's change in all steps.
        gains: name -> largest factor by which the optimizer enlarges a relative error of gradients.
        eps: AdamW's epsilon in these steps.
        steps: number of steps.
        layers: blocks of the model.
        longest: terms of the longest sum in the model.
    """

    weights: Mapping[str, Tensor]
    changes: Mapping[str, Tensor]
    gains: Mapping[str, float]
    eps: float
    steps: int
    layers: int
    longest: int

    def errors(self, name: str, weight: Tensor) -> tuple[float, float]:
        """The errors of a weight, of its worst block and as a whole, by `error_of`."""
        got, expected, change = sample(weight), self.weights[name], self.changes[name]
        parts = got, expected, change
        return error_of(*parts), error_of(*(part.reshape(1, -1) for part in parts))

    def bounds(self, dtype: str, tolerance: str) -> dict[str, tuple[float, float]]:
        """Name -> the largest errors that a weight may have, as `errors` returns them.

        tolerance: a key of `_MOST`.
        """
        gradient = self._gradient_error(dtype)
        rounding = {
            name: self._storage(name) + self.gains[name] * gradient for name in self.weights
        }
        return {
            name: (min(_MOST_OF_BLOCK, bound), min(_MOST[tolerance], bound))
            for name, bound in rounding.items()
        }

    def _storage(self, name: str) -> float:
        weight, change = (rms(samples[name]) for samples in (self.weights, self.changes))
        return self.steps * _FLOAT32 * weight / change

    def _gradient_error(self, dtype: str) -> float:
        walk = math.sqrt(2 * self.layers)
        unit = _FLOAT32 * (1 + 0.29 * math.sqrt(self.longest))
        if dtype != "float32":
            unit = UNIT_ROUNDOFF[dtype]
        return _GRADIENTS_ALLOWED * unit * walk
