"""Launch of `hopper_forward_kernel.py` on a Hopper GPU, and the rule for when it is used."""

from dataclasses import dataclass
from math import ceil

import torch
import triton
from torch import Tensor

from lmperf.attention.triton.configurations import device_facts
from lmperf.attention.triton.launch import Form, Launch, tma_readable
from lmperf.attention.triton.tiles import LOG2_E

# The kernel is used from SHORTEST queries on, with at least TILES_PER_SM tiles of 128 queries for
# each SM (key: whether d > 128). Up to SHORT queries and keys, SHORT_SEQUENCES are enough.
# Elsewhere the kernel that splits the keys was faster on an H100, by up to 1.8 times.
SHORTEST, SHORT, SHORT_SEQUENCES = 128, 1024, 8
TILES_PER_SM = {False: 0.9, True: 0.45}
# Queries per consumer, as in the kernel.
ROWS = 64
# Registers per thread, by the number of consumer warp groups. An SM has 65536 registers; the
# producer warp gets the fewest possible.
CONSUMER_REGISTERS = {2: 240, 3: 160}
PRODUCER_REGISTERS = 24
# Bytes of the keys and values of the sequences whose tiles a causal kernel sorts together: from
# TOGETHER to about twice as many, or all of a call up to ALL_TOGETHER. The L2 cache has 50 MB.
TOGETHER, ALL_TOGETHER = 16 * 2**20, 48 * 2**20
# Causal tiles are taken in pairs up to PAIRED_LENGTH queries, from PAIRS_PER_SM pairs for each SM
# on, if on average PAIRED_BUSY of the SMs are busy. Elsewhere, and with NARROW, sorted tiles were
# faster on an H100.
PAIRED_LENGTH, PAIRS_PER_SM, PAIRED_BUSY = 2048, 3.5, 0.93


@dataclass(frozen=True)
class Configuration:
    """A tile has 64 queries for each of 2 or 3 `consumers`; a step takes block_n keys.

    block_n: at least 64. stages: buffers for tiles of keys, and as many for values. overlap: as in
    `hopper_forward_kernel.py`. own_out: outputs have buffers of their own, so that the next queries
    can be loaded before the outputs are stored; else they reuse the buffers of the queries.
    """

    block_n: int
    consumers: int
    stages: int
    overlap: bool
    own_out: bool = True


WIDE = Configuration(block_n=64, consumers=2, stages=2, overlap=True, own_out=False)
MIDDLE = Configuration(block_n=128, consumers=2, stages=2, overlap=True)
NARROW = Configuration(block_n=128, consumers=3, stages=3, overlap=False)
NARROW_SHORT = Configuration(block_n=128, consumers=2, stages=3, overlap=False)
# From this length and so many tiles an SM on, NARROW is faster under a causal mask, on an H100:
# little of its large tiles is wasted on the diagonal.
LONG, LONG_TILES_PER_SM = 2048, 2
# How much faster NARROW computes a query without a mask, if all SMs are busy (H100).
NARROW_GAIN = 1.09


def choose(n: int, d: int, causal: bool, sequences: int, sms: int) -> Configuration:
    """The tile configuration for `sequences` (batch times heads) of n queries and head width d."""
    if d > 128:
        return WIDE
    if d > 64:
        return MIDDLE
    large, small = (tile_count(c, n) * sequences / sms for c in (NARROW, NARROW_SHORT))
    if causal:
        return NARROW if n >= LONG and large >= LONG_TILES_PER_SM else NARROW_SHORT
    # All tiles take equally long, so the last ones may leave most of the SMs idle.
    times = ceil(large) * NARROW.consumers / NARROW_GAIN, ceil(small) * NARROW_SHORT.consumers
    return NARROW if times[0] < times[1] else NARROW_SHORT


def tile_count(configuration: Configuration, n: int) -> int:
    """The number of tiles of a sequence of n queries."""
    return triton.cdiv(n, configuration.consumers * ROWS)


def is_paired(configuration: Configuration, n: int, sequences: int, sms: int) -> bool:
    """Whether a causal kernel takes pairs of tiles."""
    waves = triton.cdiv(tile_count(configuration, n), 2) * sequences / sms
    is_busy = waves >= PAIRS_PER_SM and waves / ceil(waves) >= PAIRED_BUSY
    return is_busy and n <= PAIRED_LENGTH and configuration != NARROW


def together_of(tiles: int, sequences: int, sequence_bytes: int, sms: int) -> int:
    """How many sequences a causal kernel sorts together: all, or as many as fill whole waves best.

    Incomplete waves would leave the same SMs idle each time. Never less than one wave: each program
    starts with a tile of the first one. sequence_bytes: of the keys and values of one sequence.
    """
    if sequences * sequence_bytes <= ALL_TOGETHER:
        return sequences
    least = max(TOGETHER // sequence_bytes, triton.cdiv(sms, tiles))

    def busy(count: int) -> float:
        waves = count * tiles / sms
        return waves / ceil(waves)

    return min(max(range(least, 2 * least + 3), key=busy), sequences)


def schedule(
    tiles: int, sequences: int, sequence_bytes: int, causal: bool, paired: bool, sms: int
) -> tuple[int, int, int, int]:
    """Programs, and the arguments items, together and section of a persistent kernel.

    tiles: of one sequence, each of them the work of a program at a time.
    """
    items = (triton.cdiv(tiles, 2) if paired else tiles) * sequences
    programs = min(items, sms)
    together = together_of(tiles, sequences, sequence_bytes, sms)
    # Each group of sorted sequences but the last is padded to whole waves.
    section = triton.cdiv(together * tiles, programs) * programs
    if causal and not paired:
        items += (triton.cdiv(sequences, together) - 1) * (section - together * tiles)
    return programs, items, together, section


def tail_of(d: int) -> int:
    """How many columns beyond the first 64 a matmul covers; 0 means that it covers the whole tile.

    Tiles in shared memory are a power of two wide; for 64 < d <= 96 the matmuls skip most zeros.
    """
    return 16 if 64 < d <= 80 else 32 if 80 < d <= 96 else 0


def takes(q: Form, k: Form, v: Form) -> bool:
    """Whether the kernel supports these inputs and is faster.

    Unlike `forward.py`, it cannot split the keys among programs if there are few tiles.
    """
    batch, heads, n, d = q.shape
    if n < SHORTEST or d % 8 or not tma_readable(q, k, v):
        return False
    hopper, sms = device_facts(q.device.index)
    tiles = triton.cdiv(n, 2 * ROWS) * batch * heads
    are_many = tiles >= TILES_PER_SM[d > 128] * sms
    are_short = max(n, k.shape[2]) <= SHORT and batch * heads >= SHORT_SEQUENCES
    return hopper and (are_many or are_short)


class Forward:
    """The launch of one signature: q [b, h, n, d], k and v [b, h, m, d], float16 or bfloat16.

    TMA needs d to be a multiple of 8, the innermost stride to be 1, and all other strides to be
    positive multiples of 16 bytes.
    """

    def __init__(
        self,
        q: Form,
        k: Form,
        causal: bool,
        scale: float,
        configuration: Configuration | None = None,
    ):
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        from lmperf.attention.triton.hopper_forward_kernel import LAYOUT, forward_kernel

        batch, heads, n, d = q.shape
        m, sequences = k.shape[2], batch * heads
        _, sms = device_facts(q.device.index)
        c = configuration or choose(n, d, causal, sequences, sms)
        tiles, width = tile_count(c, n), 64 if d <= 64 else 128 if d <= 128 else 256
        paired = causal and is_paired(c, n, sequences, sms)
        programs, items, together, section = schedule(
            tiles, sequences, 2 * m * d * q.dtype.itemsize, causal, paired, sms
        )

        def described(rows: int):
            box = [1, 1, rows, width]
            return lambda x: TensorDescriptor(x, list(x.shape), list(x.stride()), box, LAYOUT)

        self._rows = (batch, heads, n)
        self._launch = Launch(
            forward_kernel,
            (programs,),
            {
                "BLOCK_N": c.block_n, "CONSUMERS": c.consumers, "STAGES": c.stages,
                "CAUSAL": causal, "PAIRED": paired, "TAIL": tail_of(d), "OVERLAP": c.overlap,
                "OWN_OUT": c.own_out, "REGISTERS": CONSUMER_REGISTERS[c.consumers],
                "PRODUCER": PRODUCER_REGISTERS,
            },
            {"num_warps": 4},
            tuple(map(described, (ROWS, c.block_n, c.block_n, ROWS))),
        )  # fmt: skip
        self._sizes = items, sequences, tiles, together, section, heads, n, m
        self._scale = scale * LOG2_E.value

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Returns out [b, h, n, d] in q's dtype and, if q is dense, layout; lse [b, h, n]."""
        out = torch.empty_like(q)
        lse = torch.empty(self._rows, dtype=torch.float32, device=q.device)
        self._launch(q, k, v, out, lse, *self._sizes, self._scale)
        return out, lse
