"""Selects the configuration of a kernel: from the table of its device, else by autotuning.

A configuration depends on the device, the precision, the head width and how many tiles there are.
If there are too few tiles to fill the device, smaller ones are used, and the loop of a program is
split into chunks (`splits.py`).
"""

from dataclasses import replace
from functools import lru_cache

import torch
import triton

from lmperf.attention.triton.autotune import Kernel, tuned
from lmperf.attention.triton.configurations import (
    FUSED,
    HOPPER,
    INTERPRETER,
    Configuration,
    FusedConfiguration,
    device_facts,
    precision_class,
)
from lmperf.attention.triton.tiles import INTERPRETED, padded

# With fewer warps per SM than FEW_WARPS, the table's small tiles are used. Chunks are split further
# as long as there are at most MANY_WARPS per SM.
FEW_WARPS = 6
MANY_WARPS = 12
SHORTEST_CHUNK = 256
CHUNK_STEP = 128
# The fused backward kernel runs one program per SM at a time. It needs this many per SM in total:
# with 0.97 it was faster than the two gradient kernels, which split their loops.
FUSED_PROGRAMS = 0.9


def choose(
    kernel: Kernel,
    causal: bool,
    dtype: torch.dtype,
    owned: int,
    walked: int,
    d: int,
    sequences: int,
    device: torch.device,
) -> Configuration:
    """The configuration of a kernel, from the table of its device or by autotuning.

    sequences: batch times heads. owned: rows that are divided among the programs, keys for
    "key_gradients" and queries for the other kernels. walked: rows of the other axis, which each
    program loops over.
    """
    if INTERPRETED:
        return INTERPRETER[kernel.name]
    precision = precision_class(dtype)
    return _chosen(kernel, causal, precision, owned, walked, d, sequences, device.index)


@lru_cache(maxsize=4096)
def _chosen(
    kernel: Kernel,
    causal: bool,
    precision: str,
    owned: int,
    walked: int,
    d: int,
    sequences: int,
    index: int,
) -> Configuration:
    hopper, sms = device_facts(index)
    if not hopper:
        return tuned(kernel, causal, precision, d, index)
    with_mask, without_mask, small = HOPPER[kernel.name, precision, padded(d)]
    large = with_mask if causal else without_mask
    warps = triton.cdiv(owned, large.owned(kernel.name)) * sequences * large.num_warps
    found = large if warps >= FEW_WARPS * sms else small
    return in_chunks(found, kernel.name, causal, owned, walked, sequences, sms)


def choose_fused(
    n: int, m: int, d: int, sequences: int, device: torch.device
) -> FusedConfiguration | None:
    """Tile sizes of the fused backward kernel; None if the two gradient kernels are faster.

    sequences: batch times heads. The fused kernel does not split its loop, so it needs enough tiles
    of keys. It writes dK and dV by TMA: their rows, d elements apart, must be multiples of 16 bytes
    even if k and v are padded.
    """
    hopper, sms = device_facts(device.index)
    width = padded(d)
    if not hopper or width not in FUSED or d % 8 != 0:
        return None
    c = FUSED[width]
    programs = triton.cdiv(m, c.block_n) * sequences
    return c if n >= c.shortest and programs >= FUSED_PROGRAMS * sms else None


def in_chunks(
    c: Configuration,
    kernel: str,
    causal: bool,
    owned: int,
    walked: int,
    sequences: int,
    sms: int,
) -> Configuration:
    """The configuration, its loop split into as many chunks as still run at the same time.

    The number of splits is a power of two before a chunk is rounded up to a multiple of CHUNK_STEP,
    and no chunk is shorter than SHORTEST_CHUNK. Under a causal mask, half of the pairs of a tile
    and a chunk are empty.
    """
    tiles = triton.cdiv(owned, c.owned(kernel)) * sequences
    splits = 1
    while True:
        pairs = tiles * (2 * splits + 1) / 2 if causal else tiles * 2 * splits
        chunk = triton.cdiv(walked, 2 * splits)
        if pairs * c.num_warps > MANY_WARPS * sms or chunk < SHORTEST_CHUNK:
            break
        splits *= 2
    if splits == 1:
        return c
    return replace(c, chunk=triton.cdiv(triton.cdiv(walked, splits), CHUNK_STEP) * CHUNK_STEP)
