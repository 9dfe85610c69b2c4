"""Tile sizes, warps and pipeline stages of the kernels on the devices that were tuned.

The numbers come from `tools/tune_attention.py`. The tests run every configuration on a GPU.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from lmperf.attention.triton.tiles import INTERPRETED, dot_precision, padded

KERNELS = ("forward", "key_gradients", "query_gradients")


@dataclass(frozen=True)
class Configuration:
    """Tile sizes: a program owns a tile of block_m queries or block_n keys.

    It loops over tiles of the other axis. chunk: how many rows of the other axis one program loops
    over; 0: all of them.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    chunk: int = 0

    def owned(self, kernel: str) -> int:
        """How many rows the tile has that one program of the kernel owns."""
        return self.block_n if kernel == "key_gradients" else self.block_m


@dataclass(frozen=True)
class FusedConfiguration:
    """Tiles of the fused backward kernel, and the shortest length for which it is faster."""

    block_m: int
    block_n: int
    num_stages: int
    shortest: int


def _c(block_m: int, block_n: int, num_warps: int, num_stages: int) -> Configuration:
    return Configuration(block_m, block_n, num_warps, num_stages)


# (kernel, precision, padded head width) -> configuration with a causal mask, configuration without,
# configuration if there are few tiles.
HOPPER = {
    ("forward", "half", 16): (_c(128, 64, 4, 3), _c(64, 64, 4, 3), _c(64, 128, 4, 4)),
    ("key_gradients", "half", 16): (_c(32, 128, 4, 2), _c(32, 128, 4, 3), _c(128, 64, 4, 3)),
    ("query_gradients", "half", 16): (_c(64, 64, 4, 3), _c(64, 64, 4, 3), _c(64, 128, 4, 3)),
    ("forward", "half", 32): (_c(64, 128, 4, 3), _c(64, 64, 4, 3), _c(64, 128, 4, 4)),
    ("key_gradients", "half", 32): (_c(64, 128, 4, 2), _c(32, 128, 4, 3), _c(128, 64, 4, 3)),
    ("query_gradients", "half", 32): (_c(64, 64, 4, 3), _c(128, 32, 4, 3), _c(64, 128, 4, 3)),
    ("forward", "half", 64): (_c(64, 128, 4, 2), _c(64, 128, 4, 2), _c(64, 64, 4, 3)),
    ("key_gradients", "half", 64): (_c(32, 64, 4, 2), _c(32, 64, 4, 3), _c(32, 64, 4, 2)),
    ("query_gradients", "half", 64): (_c(64, 64, 4, 3), _c(64, 128, 4, 3), _c(64, 64, 4, 3)),
    ("forward", "half", 128): (_c(64, 64, 4, 3), _c(128, 64, 4, 2), _c(64, 32, 4, 3)),
    ("key_gradients", "half", 128): (_c(64, 64, 4, 2), _c(64, 64, 4, 2), _c(64, 64, 4, 2)),
    ("query_gradients", "half", 128): (_c(128, 64, 8, 3), _c(128, 64, 8, 3), _c(64, 32, 4, 2)),
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
    ("forward", "float32", 16): (_c(64, 64, 4, 2), _c(128, 128, 4, 3), _c(64, 128, 4, 2)),
    ("key_gradients", "float32", 16): (_c(32, 64, 4, 2), _c(128, 64, 4, 2), _c(64, 64, 4, 2)),
    ("query_gradients", "float32", 16): (_c(64, 64, 4, 2), _c(64, 64, 4, 2), _c(64, 64, 4, 3)),
    ("forward", "float32", 32): (_c(64, 64, 4, 2), _c(128, 128, 4, 3), _c(64, 128, 4, 2)),
    ("key_gradients", "float32", 32): (_c(32, 64, 4, 2), _c(128, 64, 4, 2), _c(64, 64, 4, 2)),
    ("query_gradients", "float32", 32): (_c(64, 64, 4, 2), _c(64, 64, 4, 2), _c(64, 64, 4, 3)),
    ("forward", "float32", 64): (_c(64, 64, 4, 3), _c(128, 64, 8, 2), _c(64, 64, 4, 3)),
    ("key_gradients", "float32", 64): (_c(64, 64, 4, 2), _c(64, 64, 4, 2), _c(64, 64, 4, 2)),
    ("query_gradients", "float32", 64): (_c(64, 64, 4, 2), _c(128, 64, 8, 3), _c(64, 32, 4, 2)),
    ("forward", "float32", 128): (_c(64, 64, 4, 3), _c(128, 64, 8, 2), _c(64, 64, 4, 3)),
    ("key_gradients", "float32", 128): (_c(32, 128, 8, 2), _c(32, 128, 8, 2), _c(32, 128, 8, 2)),
    ("query_gradients", "float32", 128): (_c(128, 32, 8, 3), _c(128, 32, 8, 3), _c(64, 64, 4, 2)),
    ("forward", "float32", 256): (_c(64, 32, 8, 2), _c(32, 32, 4, 2), _c(64, 32, 8, 2)),
    ("key_gradients", "float32", 256): (_c(16, 64, 8, 2), _c(32, 64, 8, 1), _c(16, 64, 8, 2)),
    ("query_gradients", "float32", 256): (_c(64, 16, 8, 2), _c(64, 16, 8, 2), _c(64, 16, 8, 2)),
}

# Fused backward kernel for float16 and bfloat16, by padded head width. At lengths below the last
# number it was slower than the two gradient kernels, or was not measured.
FUSED = {
    64: FusedConfiguration(128, 128, 2, 256),
    128: FusedConfiguration(64, 128, 2, 512),
    256: FusedConfiguration(64, 64, 2, 512),
}

# By precision, for padded head widths up to 64, 128 and 256. All fit in 96 KiB of shared memory.
PORTABLE = {
    "half": (_c(64, 64, 4, 2), _c(64, 32, 4, 2), _c(32, 32, 4, 1)),
    "float32": (_c(32, 32, 4, 2), _c(32, 32, 4, 1), _c(16, 16, 4, 1)),
}

# Tall and wide tiles, so that tests under Triton's interpreter cover both on the diagonal.
INTERPRETER = {
    "forward": _c(64, 32, 4, 1),
    "key_gradients": _c(32, 64, 4, 1),
    "query_gradients": _c(32, 64, 4, 1),
}


def products_of(dtype: torch.dtype) -> int:
    """Matmuls per product: 3 for float32 split into float16 halves (without TF32), else 1."""
    float32 = dtype == torch.float32 and not INTERPRETED
    return 3 if float32 and dot_precision(dtype) == "ieee" else 1


def precision_class(dtype: torch.dtype) -> str:
    """The class that selects tile sizes: "half" (float16, bfloat16), "tf32" or "float32"."""
    if dtype != torch.float32:
        return "half"
    return "tf32" if dot_precision(dtype) == "tf32" else "float32"


def portable(precision: str, d: int) -> Configuration:
    """A configuration for a device without a table of tuned configurations."""
    size = 0 if padded(d) <= 64 else 1 if padded(d) == 128 else 2
    return PORTABLE["half" if precision == "half" else "float32"][size]


@lru_cache
def device_facts(index: int) -> tuple[bool, int]:
    """Whether the device is a Hopper GPU, and its number of SMs."""
    properties = torch.cuda.get_device_properties(index)
    hopper = torch.version.hip is None and properties.major == 9
    return hopper, properties.multi_processor_count
