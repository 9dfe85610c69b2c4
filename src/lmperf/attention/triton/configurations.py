"""Tile sizes, warps and pipeline stages of the kernels on the devices that were tuned.

The numbers come from `tools/tune_attention.py`. Every configuration named here is run by the tests
on a GPU.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import triton

from lmperf.attention.triton.tiles import INTERPRETED, dot_precision, padded

# Warps a multiprocessor: below the one, smaller tiles and chunks; up to the other, more chunks.
FEW_WARPS = 6
MANY_WARPS = 12
SHORTEST_CHUNK = 256
CHUNK_STEP = 128

KERNELS = ("forward", "key_gradients", "query_gradients")


@dataclass(frozen=True)
class Configuration:
    """block_m queries and block_n keys a tile; a program owns the one and walks over the other.

    chunk: how many of the others one program walks over, or 0 for all of them.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    chunk: int = 0

    def owned(self, kernel: str) -> int:
        """Rows of the tile that one program of the kernel owns."""
        return self.block_n if kernel == "key_gradients" else self.block_m


@dataclass(frozen=True)
class FusedConfiguration:
    """Tiles of the kernel that makes all gradients, and the shortest walk for which it pays."""

    block_m: int
    block_n: int
    num_stages: int
    shortest: int


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

# By padded head width, for float16 and bfloat16; shorter walks were slower or not measured.
FUSED = {
    64: FusedConfiguration(64, 128, 3, 2048),
    128: FusedConfiguration(64, 128, 3, 1024),
    256: FusedConfiguration(64, 64, 2, 2048),
}
# Programs a multiprocessor, one at a time, that the fused kernel needs to keep all of them busy.
FUSED_ROUNDS = 1.5

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


def products_of(dtype: torch.dtype) -> int:
    """How many matmuls one product is: 3, of float16 halves, for float32 without TF32; else 1."""
    float32 = dtype == torch.float32 and not INTERPRETED
    return 3 if float32 and dot_precision(dtype) == "ieee" else 1


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
def device_facts(index: int) -> tuple[bool, int]:
    """Whether the device has the Hopper table, and its number of multiprocessors."""
    properties = torch.cuda.get_device_properties(index)
    hopper = torch.version.hip is None and properties.major == 9
    return hopper, properties.multi_processor_count


def choose(
    kernel: str,
    causal: bool,
    dtype: torch.dtype,
    owned: int,
    walked: int,
    d: int,
    sequences: int,
    device: torch.device,
) -> Configuration:
    """The configuration for `sequences` sequences of `owned` rows, each to walk over `walked`.

    Owned are the keys for "key_gradients", the queries else. Where a device has a table, its
    smaller tiles are taken when the larger would leave multiprocessors without work, and what a
    tile walks over is split among programs when there are still too few.
    """
    if INTERPRETED:
        return INTERPRETER[kernel]
    precision = precision_class(dtype)
    return _chosen(kernel, causal, precision, owned, walked, d, sequences, device.index)


@lru_cache(maxsize=4096)
def _chosen(
    kernel: str,
    causal: bool,
    precision: str,
    owned: int,
    walked: int,
    d: int,
    sequences: int,
    index: int,
) -> Configuration:
    hopper, processors = device_facts(index)
    if not hopper:
        from lmperf.attention.triton.autotune import tuned

        return tuned(kernel, causal, precision, d, index)
    entry = HOPPER.get((kernel, precision, padded(d)))
    if entry is None:
        return portable(precision, d)
    large, small = entry[0 if causal else 1], entry[2]
    warps = triton.cdiv(owned, large.owned(kernel)) * sequences * large.num_warps
    found = large if warps >= FEW_WARPS * processors else small
    return in_chunks(found, kernel, causal, owned, walked, sequences, processors)


def choose_fused(
    n: int, m: int, d: int, sequences: int, device: torch.device
) -> FusedConfiguration | None:
    """Tiles of the fused backward pass of `sequences` heads, or None where two kernels are better.

    It does not divide the walk of a program, so it needs enough of them. The copy engine writes
    its results, whose rows are d elements apart where those of k and v are padded.
    """
    hopper, processors = device_facts(device.index)
    c = FUSED.get(padded(d)) if hopper else None
    if c is None or n < c.shortest or d % 8 != 0:
        return None
    programs = triton.cdiv(m, c.block_n) * sequences
    return c if programs >= FUSED_ROUNDS * processors else None


def in_chunks(
    c: Configuration,
    kernel: str,
    causal: bool,
    owned: int,
    walked: int,
    sequences: int,
    processors: int,
) -> Configuration:
    """The configuration with what a tile walks over split, while all programs run at once.

    The splits are a power of two, the chunks a multiple of CHUNK_STEP that is no shorter than
    SHORTEST_CHUNK; under a causal mask half of the pairs of a tile and a chunk are empty.
    """
    tiles = triton.cdiv(owned, c.owned(kernel)) * sequences
    splits = 1
    while True:
        pairs = tiles * (2 * splits + 1) / 2 if causal else tiles * 2 * splits
        chunk = triton.cdiv(walked, 2 * splits)
        if pairs * c.num_warps > MANY_WARPS * processors or chunk < SHORTEST_CHUNK:
            break
        splits *= 2
    if splits == 1:
        return c
    return replace(c, chunk=triton.cdiv(triton.cdiv(walked, splits), CHUNK_STEP) * CHUNK_STEP)


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
