"""Tile sizes, warps and pipeline stages of the kernels on the devices that were tuned.

The numbers come from `tune.py`. Every configuration named here is run by the tests on a GPU.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton

from lmperf.kernels.flash_attention.tiles import INTERPRETED, dot_precision, padded

KERNELS = ("forward", "key_gradients", "query_gradients")


@dataclass(frozen=True)
class Configuration:
    """block_m queries and block_n keys a tile; a program owns the one and walks over the other."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    def owned(self, kernel: str) -> int:
        """Rows of the tile that one program of the kernel owns."""
        return self.block_n if kernel == "key_gradients" else self.block_m


def _c(block_m: int, block_n: int, num_warps: int, num_stages: int) -> Configuration:
    return Configuration(block_m, block_n, num_warps, num_stages)


# (kernel, precision, padded head width): causal, full, and where tiles do not fill the device.
HOPPER = {
    ("forward", "half", 16): (_c(128, 64, 4, 3), _c(64, 64, 4, 3), _c(64, 128, 4, 4)),
    ("key_gradients", "half", 16): (_c(32, 128, 4, 2), _c(32, 128, 4, 3), _c(128, 64, 4, 3)),
    ("query_gradients", "half", 16): (_c(64, 64, 4, 3), _c(64, 64, 4, 3), _c(64, 128, 4, 3)),
    ("forward", "half", 32): (_c(64, 128, 4, 3), _c(64, 64, 4, 3), _c(64, 128, 4, 4)),
    ("key_gradients", "half", 32): (_c(64, 128, 4, 2), _c(32, 128, 4, 3), _c(128, 64, 4, 3)),
    ("query_gradients", "half", 32): (_c(64, 64, 4, 3), _c(128, 32, 4, 3), _c(64, 128, 4, 3)),
    ("forward", "half", 64): (_c(64, 64, 4, 3), _c(128, 64, 8, 3), _c(64, 128, 4, 4)),
    ("key_gradients", "half", 64): (_c(64, 64, 4, 3), _c(32, 128, 4, 3), _c(64, 64, 4, 3)),
    ("query_gradients", "half", 64): (_c(64, 64, 4, 3), _c(128, 64, 8, 3), _c(64, 128, 4, 3)),
    ("forward", "half", 128): (_c(64, 64, 4, 3), _c(128, 128, 8, 3), _c(64, 64, 4, 3)),
    ("key_gradients", "half", 128): (_c(32, 64, 4, 2), _c(64, 128, 8, 3), _c(64, 64, 4, 3)),
    ("query_gradients", "half", 128): (_c(128, 64, 8, 3), _c(128, 32, 8, 3), _c(64, 64, 4, 3)),
    ("forward", "half", 256): (_c(128, 32, 8, 3), _c(128, 64, 8, 2), _c(64, 32, 4, 3)),
    ("key_gradients", "half", 256): (_c(64, 64, 8, 2), _c(64, 64, 8, 2), _c(64, 64, 8, 2)),
    ("query_gradients", "half", 256): (_c(128, 32, 8, 3), _c(128, 32, 8, 3), _c(64, 32, 4, 3)),
    ("forward", "tf32", 16): (_c(64, 64, 4, 1), _c(64, 64, 4, 1), _c(64, 64, 4, 2)),
    ("key_gradients", "tf32", 16): (_c(64, 128, 4, 1), _c(64, 128, 4, 1), _c(64, 64, 4, 1)),
    ("query_gradients", "tf32", 16): (_c(64, 64, 4, 2), _c(64, 64, 4, 2), _c(64, 64, 4, 1)),
    ("forward", "tf32", 32): (_c(128, 64, 4, 2), _c(128, 64, 4, 2), _c(64, 64, 4, 2)),
    ("key_gradients", "tf32", 32): (_c(64, 128, 4, 1), _c(64, 128, 4, 1), _c(64, 64, 4, 1)),
    ("query_gradients", "tf32", 32): (_c(128, 64, 8, 2), _c(128, 64, 8, 2), _c(64, 64, 4, 2)),
    ("forward", "tf32", 64): (_c(128, 64, 4, 1), _c(128, 64, 4, 1), _c(64, 64, 4, 2)),
    ("key_gradients", "tf32", 64): (_c(64, 128, 8, 1), _c(64, 128, 8, 1), _c(64, 64, 4, 1)),
    ("query_gradients", "tf32", 64): (_c(128, 64, 8, 2), _c(128, 64, 8, 2), _c(64, 64, 4, 2)),
    ("forward", "tf32", 128): (_c(128, 64, 8, 2), _c(128, 64, 8, 2), _c(64, 64, 4, 2)),
    ("key_gradients", "tf32", 128): (_c(64, 128, 8, 1), _c(64, 128, 8, 1), _c(32, 64, 4, 1)),
    ("query_gradients", "tf32", 128): (_c(128, 64, 8, 1), _c(128, 64, 8, 1), _c(64, 64, 4, 1)),
    ("forward", "tf32", 256): (_c(32, 32, 4, 2), _c(32, 32, 4, 2), _c(32, 32, 4, 2)),
    ("key_gradients", "tf32", 256): (_c(32, 32, 4, 1), _c(32, 32, 4, 1), _c(32, 32, 4, 1)),
    ("query_gradients", "tf32", 256): (_c(32, 32, 4, 2), _c(32, 32, 4, 2), _c(32, 32, 4, 2)),
    ("forward", "float32", 32): (_c(128, 64, 4, 2), _c(128, 64, 4, 2), _c(64, 64, 4, 2)),
    ("key_gradients", "float32", 32): (_c(64, 128, 8, 1), _c(64, 128, 8, 1), _c(64, 64, 4, 2)),
    ("query_gradients", "float32", 32): (_c(128, 64, 4, 1), _c(128, 64, 4, 1), _c(64, 64, 4, 1)),
    ("forward", "float32", 64): (_c(128, 64, 8, 2), _c(128, 64, 8, 2), _c(64, 64, 4, 2)),
    ("key_gradients", "float32", 64): (_c(64, 128, 8, 1), _c(64, 128, 8, 1), _c(64, 64, 4, 1)),
    ("query_gradients", "float32", 64): (_c(128, 64, 8, 1), _c(128, 64, 8, 1), _c(64, 64, 4, 2)),
    ("forward", "float32", 128): (_c(128, 64, 8, 1), _c(128, 64, 8, 1), _c(64, 64, 4, 2)),
    ("key_gradients", "float32", 128): (_c(32, 64, 4, 1), _c(32, 64, 4, 1), _c(32, 64, 4, 1)),
    ("query_gradients", "float32", 128): (_c(64, 32, 4, 2), _c(64, 32, 4, 2), _c(64, 32, 4, 2)),
}

# By precision and padded head width up to 64, 128, 256: fits 96 KiB of shared memory.
PORTABLE = {
    "half": (_c(64, 64, 4, 2), _c(64, 32, 4, 2), _c(32, 32, 4, 1)),
    "float32": (_c(32, 32, 4, 2), _c(32, 32, 4, 1), _c(16, 16, 4, 1)),
}

# Two shapes of tile, so that the tests cover both orders on the diagonal.
INTERPRETER = {
    "forward": _c(64, 32, 4, 1),
    "key_gradients": _c(32, 64, 4, 1),
    "query_gradients": _c(32, 64, 4, 1),
}


def precision_class(dtype: torch.dtype) -> str:
    """What decides about tiles: "half" (float16, bfloat16), "tf32" or "float32"."""
    if dtype != torch.float32:
        return "half"
    return "tf32" if dot_precision(dtype) == "tf32" else "float32"


def portable(precision: str, d: int) -> Configuration:
    """A configuration for a device without a table."""
    size = 0 if padded(d) <= 64 else 1 if padded(d) == 128 else 2
    return PORTABLE["half" if precision == "half" else "float32"][size]


@lru_cache
def _device_facts(index: int) -> tuple[bool, int]:
    """Whether the device has the Hopper table, and its number of multiprocessors."""
    properties = torch.cuda.get_device_properties(index)
    hopper = torch.version.hip is None and properties.major == 9
    return hopper, properties.multi_processor_count


def choose(
    kernel: str,
    causal: bool,
    dtype: torch.dtype,
    n: int,
    d: int,
    sequences: int,
    device: torch.device,
) -> Configuration:
    """The configuration for `sequences` sequences of n owned rows (keys for "key_gradients").

    Where a device has a table, its smaller tiles are taken when the larger would leave
    multiprocessors without work.
    """
    if INTERPRETED:
        return INTERPRETER[kernel]
    hopper, processors = _device_facts(device.index)
    precision = precision_class(dtype)
    entry = HOPPER.get((kernel, precision, padded(d))) if hopper else None
    if entry is None:
        return portable(precision, d)
    large, small = entry[0 if causal else 1], entry[2]
    tiles = triton.cdiv(n, large.owned(kernel)) * sequences
    return large if tiles >= processors else small


def offered() -> list[tuple[str, int, dict[str, Configuration]]]:
    """Every configuration of this module, for tests: (precision class, d, kernel -> configuration).

    For each precision and width, one set for each column of the table, and a portable one.
    """
    sets = []
    for precision, width in sorted({key[1:] for key in HOPPER}):
        for column in (0, 1, 2):
            by_kernel = {k: HOPPER[k, precision, width][column] for k in KERNELS}
            sets.append((precision, width, by_kernel))
    for precision in ("half", "float32", "tf32"):
        for width in (64, 128, 256):
            sets.append((precision, width, dict.fromkeys(KERNELS, portable(precision, width))))
    return sets
