"""Tile sizes, split of the batch among programs, and aligned strides of the lrpe kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret

# Triton does not specialise kernels to these: one compiled kernel serves all their values.
COUNTS = (
    *("batch", "heads", "tokens", "extra_tokens", "share"),
    *("stride_b", "stride_h", "stride_t"),
)

ELEMENTS = 1024
PROGRAMS_PER_SM = 8
LARGEST_ALIGNMENT = 16


@dataclass(frozen=True)
class Configuration:
    """A program owns block_t tokens of one head and has `stages` loads in flight in its loop."""

    block_t: int
    num_warps: int = 4
    stages: int = 1


@lru_cache
def configuration(d: int) -> Configuration:
    """Tile configuration for head width d: tiles of ELEMENTS elements.

    A tile is 2 KiB of bfloat16, and 8 angles per thread, whose cos and sin take 16 registers:
    several programs share an SM and hide each other's latency.
    """
    return Configuration(max(1, ELEMENTS // triton.next_power_of_2(d)))


@lru_cache
def _sms(index: int | None) -> int:
    if INTERPRETED:
        return 1
    return torch.cuda.get_device_properties(index).multi_processor_count


def shares(batch: int, tiles: int, device: torch.device) -> tuple[int, int]:
    """The number of parts that the batch is split into, and the most sequences of a part.

    Each part computes all angles, so there is one part unless there are too few tiles (heads x
    blocks of tokens) to fill the device.
    """
    wanted = PROGRAMS_PER_SM * _sms(device.index)
    share = -(-batch // min(batch, -(-wanted // tiles)))
    return -(-batch // share), share


def readable(x: Tensor) -> Tensor:
    """x, or a contiguous copy if the stride of its channels is not 1."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def aligned_strides(x: Tensor) -> tuple[int, tuple[int, int, int]]:
    """A power of two (at most 16) that divides the strides of x, and the strides divided by it.

    The power is the largest possible. The kernel multiplies the strides by it again. So the
    compiler knows the alignment of every row, and loads 16 bytes at a time, without being
    specialised to the strides, which change with the length.
    """
    strides = x.stride()[:3]
    alignment = math.gcd(LARGEST_ALIGNMENT, *strides)
    return alignment, tuple(stride // alignment for stride in strides)
