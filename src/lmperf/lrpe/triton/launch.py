"""How the work is cut into programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret

# One compiled kernel serves every value of these.
COUNTS = (
    *("batch", "heads", "tokens", "extra_tokens", "share"),
    *("stride_b", "stride_h", "stride_t"),
)

ELEMENTS = 1024
PROGRAMS_PER_PROCESSOR = 8
LARGEST_ALIGNMENT = 16


@dataclass(frozen=True)
class Configuration:
    """A program owns block_t tokens of one head, with `stages` loads under way in its loop."""

    block_t: int
    num_warps: int = 4
    stages: int = 1


@lru_cache
def configuration(d: int) -> Configuration:
    """Tiles of 2048 elements for heads of d.

    That is 4 KiB of bfloat16, and 16 angles a thread, whose cos and sin take 32 registers: six
    programs or more share a multiprocessor and hide each other's waits.
    """
    return Configuration(max(1, ELEMENTS // triton.next_power_of_2(d)))


@lru_cache
def _processors(index: int | None) -> int:
    if INTERPRETED:
        return 1
    return torch.cuda.get_device_properties(index).multi_processor_count


def shares(batch: int, tiles: int, device: torch.device) -> tuple[int, int]:
    """Into how many parts the batch is cut, and how many sequences a part has at most.

    One part computes each angle once. More parts compute it once each, and are worth it where
    there are too few tiles (heads x blocks of tokens) to fill the device.
    """
    wanted = PROGRAMS_PER_PROCESSOR * _processors(device.index)
    share = -(-batch // min(batch, -(-wanted // tiles)))
    return -(-batch // share), share


def readable(x: Tensor) -> Tensor:
    """x, or a contiguous copy where its channels do not lie next to each other."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def aligned_strides(x: Tensor) -> tuple[int, tuple[int, int, int]]:
    """The largest power of two up to 16 that divides the strides of x, and the strides in it.

    The kernel multiplies them again, so the compiler knows the alignment of every row (and loads
    16 bytes at a time) without knowing the strides, which change with the length.
    """
    strides = x.stride()[:3]
    alignment = math.gcd(LARGEST_ALIGNMENT, *strides)
    return alignment, tuple(stride // alignment for stride in strides)
