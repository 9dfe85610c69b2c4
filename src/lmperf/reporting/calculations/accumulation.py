"""A sum of equal addends in reduced precision, simulated addition by addition.

It tells why a measured sum is what it is: which increments the additions had, and from where on
they changed nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Bits of the significand, the implicit one included.
BITS = {"float32": 24, "float16": 11, "bfloat16": 8}


def stored(value: np.float32, dtype: str) -> np.float32:
    """A float32 number rounded to the nearest number of a dtype, to the even one in a tie."""
    if dtype == "float16":
        return np.float32(np.float16(value))
    dropped = BITS["float32"] - BITS[dtype]
    bits = int(np.float32(value).view(np.uint32))
    half = (1 << dropped) >> 1
    is_odd = (bits >> dropped) & 1
    bits += half - 1 + is_odd if dropped else 0
    return np.uint32(bits >> dropped << dropped).view(np.float32)


def spacing(value: float, dtype: str) -> float:
    """The distance from a number of a dtype to the next larger one."""
    return 2.0 ** (math.floor(math.log2(value)) - BITS[dtype] + 1)


class Binade(NamedTuple):
    """What the additions between two powers of two did.

    Attributes:
        low, high: the sums are at least ``low`` and less than ``high``.
        increment: by which most additions raised the sum.
        error: by how much all of them together raised it too much.
    """

    low: float
    high: float
    increment: float
    error: float


@dataclass(frozen=True)
class Accumulation:
    """A simulated sum.

    Attributes:
        accumulator, addend_dtype: dtypes of the sum and of the addend.
        addend: the exact addend.
        stored: the addend as its dtype stores it.
        sums: the sum after each addition, beginning with 0.
    """

    accumulator: str
    addend_dtype: str
    addend: float
    stored: float
    sums: np.ndarray

    @classmethod
    def simulated(
        cls, accumulator: str, addend_dtype: str, additions: int, addend: float
    ) -> Accumulation:
        step = stored(np.float32(addend), addend_dtype)
        sums = [np.float32(0)]
        for _ in range(additions):
            sums.append(stored(sums[-1] + step, accumulator))
        return cls(accumulator, addend_dtype, addend, float(step), np.array(sums, np.float64))

    @property
    def result(self) -> float:
        return float(self.sums[-1])

    @property
    def spacing(self) -> float:
        """The distance from the result to the next larger number."""
        return spacing(self.result, self.accumulator)

    @property
    def stalls(self) -> bool:
        """Whether further additions change nothing, as half a spacing exceeds the addend."""
        return self.sums[-1] == self.sums[-2] and self.spacing / 2 > self.stored

    @property
    def only_addend_is_rounded(self) -> bool:
        """Whether the sum is wider than its addends and, to four decimals, their product."""
        product = (len(self.sums) - 1) * self.stored
        is_wider = BITS[self.accumulator] > BITS[self.addend_dtype]
        return is_wider and f"{self.result:.4f}" == f"{product:.4f}"

    @property
    def binades(self) -> list[Binade]:
        """The additions between powers of two, from small to large sums, from the second on."""
        before, increments = self.sums[1:-1], np.diff(self.sums[1:])
        powers = np.floor(np.log2(before))
        binades = []
        for power in np.unique(powers):
            within = increments[powers == power]
            error = float((within - self.addend).sum())
            binades.append(Binade(2.0**power, 2.0 ** (power + 1), float(np.median(within)), error))
        return binades

    @property
    def worst(self) -> list[Binade]:
        """The two binades with the largest errors, in order."""
        return sorted(sorted(self.binades, key=lambda binade: -abs(binade.error))[:2])

    @property
    def rest(self) -> float:
        """The error of all additions outside the two worst binades."""
        exact = (len(self.sums) - 1) * self.addend
        return self.result - exact - sum(binade.error for binade in self.worst)
