"""Launch of `hopper_forward_kernel.py` on a Hopper GPU, and the rule for when it is used."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from lmperf.attention.triton.configurations import device_facts
from lmperf.attention.triton.launch import Form, Launch, tma_readable
from lmperf.attention.triton.tiles import LOG2_E

# The kernel is used from this length, number of sequences and total number of queries on. Below,
# the kernel that splits the keys was faster on an H200, by up to a fifth.
SHORTEST, SEQUENCES, QUERIES = 1024, 8, 16384
# Queries per consumer, as in the kernel.
ROWS = 64
# Registers per thread, by the number of consumer warp groups. An SM has 65536 registers; the
# producer warp gets the fewest possible.
CONSUMER_REGISTERS = {2: 240, 3: 160}
PRODUCER_REGISTERS = 24


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
# From this length on, little of NARROW's large tiles is wasted on the diagonal or at the end; by
# `causal`.
LONG = {True: 4096, False: 2048}


def choose(n: int, d: int, causal: bool) -> Configuration:
    """The tile configuration for n queries and head width d."""
    if d > 128:
        return WIDE
    if d > 64:
        return MIDDLE
    return NARROW if n >= LONG[causal] else NARROW_SHORT


def tail_of(d: int) -> int:
    """How many columns beyond the first 64 a matmul covers; 0 means that it covers the whole tile.

    Tiles in shared memory are a power of two wide; for 64 < d <= 96 the matmuls skip most zeros.
    """
    return 16 if 64 < d <= 80 else 32 if 80 < d <= 96 else 0


def takes(q: Form, k: Form, v: Form) -> bool:
    """Whether the kernel supports these inputs and is faster: it needs many long sequences.

    Unlike `forward.py`, it cannot split the keys among programs if there are few tiles.
    """
    batch, heads, n, d = q.shape
    sequences = batch * heads
    if n < SHORTEST or sequences < SEQUENCES or sequences * n < QUERIES:
        return False
    if d % 8 or not tma_readable(q, k, v):
        return False
    hopper, _ = device_facts(q.device.index)
    return hopper


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
        m = k.shape[2]
        c = configuration or choose(n, d, causal)
        width = 64 if d <= 64 else 128 if d <= 128 else 256
        tiles, (_, sms) = triton.cdiv(n, c.consumers * ROWS), device_facts(q.device.index)
        # Pairs have equal work, which keeps all SMs busy to the end, if there are enough of them.
        paired = causal and tiles * batch * heads >= 4 * sms
        items = (triton.cdiv(tiles, 2) if paired else tiles) * batch * heads

        def described(rows: int):
            box = [1, 1, rows, width]
            return lambda x: TensorDescriptor(x, list(x.shape), list(x.stride()), box, LAYOUT)

        self._rows = (batch, heads, n)
        self._launch = Launch(
            forward_kernel,
            (min(items, sms),),
            {
                "BLOCK_N": c.block_n, "CONSUMERS": c.consumers, "STAGES": c.stages,
                "CAUSAL": causal, "PAIRED": paired, "TAIL": tail_of(d), "OVERLAP": c.overlap,
                "OWN_OUT": c.own_out, "REGISTERS": CONSUMER_REGISTERS[c.consumers],
                "PRODUCER": PRODUCER_REGISTERS,
            },
            {"num_warps": 4},
            tuple(map(described, (ROWS, c.block_n, c.block_n, ROWS))),
        )  # fmt: skip
        self._scalars = (items, tiles, heads, n, m, scale * LOG2_E.value)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Returns out [b, h, n, d] in q's dtype and, if q is dense, layout; lse [b, h, n]."""
        out = torch.empty_like(q)
        lse = torch.empty(self._rows, dtype=torch.float32, device=q.device)
        self._launch(q, k, v, out, lse, *self._scalars)
        return out, lse
