"""Forward pass on a Hopper GPU: when `hopper_forward_kernel.py` is taken, how, and its launch."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from lmperf.attention.triton.configurations import device_facts
from lmperf.attention.triton.launch import HAS_GLUON, Form, Launch, describable
from lmperf.attention.triton.tiles import LOG2_E

# With less, the kernel that splits the keys was faster on an H200, by up to a fifth.
SHORTEST, SEQUENCES, QUERIES = 1024, 8, 16384
# Queries of a consumer, as in the kernel.
ROWS = 64
# For a thread of two or three consumers. A multiprocessor has 65536; the producer takes the fewest.
CONSUMER_REGISTERS = {2: 240, 3: 160}
PRODUCER_REGISTERS = 24


@dataclass(frozen=True)
class Configuration:
    """A tile has 64 queries for each of `consumers`, 2 or 3, which go over block_n keys at a time.

    block_n: at least 64. stages: buffers for tiles of keys, and as many for values. overlap: as in
    `hopper_forward_kernel.py`. own_out: whether outputs have buffers of their own, so that the next
    queries can come before they are stored, or take those of the queries.
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
# From so many queries on, the tiles of NARROW leave little behind the diagonal or the end.
LONG = {True: 4096, False: 2048}


def choose(n: int, d: int, causal: bool) -> Configuration:
    """The configuration for n queries of heads of d."""
    if d > 128:
        return WIDE
    if d > 64:
        return MIDDLE
    return NARROW if n >= LONG[causal] else NARROW_SHORT


def tail_of(d: int) -> int:
    """Columns of the second part of heads of d, or 0 where tiles are one part wide.

    Tiles in memory are a power of two wide, but matmuls need not go over all the zeros.
    """
    return 16 if 64 < d <= 80 else 32 if 80 < d <= 96 else 0


def takes(q: Form, k: Form, v: Form) -> bool:
    """Whether the kernel can read these, and is faster: it needs long sequences, and enough.

    It does not split the keys among programs, as `forward.py` does where tiles are few.
    """
    batch, heads, n, d = q.shape
    sequences = batch * heads
    if n < SHORTEST or sequences < SEQUENCES or sequences * n < QUERIES:
        return False
    if not HAS_GLUON or d % 8 or not describable(q, k, v):
        return False
    hopper, _ = device_facts(q.device.index)
    return hopper


class Forward:
    """The launch of one signature: q [b, h, n, d], k and v [b, h, m, d], float16 or bfloat16.

    d is a multiple of 8; innermost strides are 1, the others multiples of 16 bytes above 0, as the
    copy engine needs.
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
        tiles, (_, processors) = triton.cdiv(n, c.consumers * ROWS), device_facts(q.device.index)
        # Pairs where there are enough of them: all alike, they keep the device busy to the end.
        paired = causal and tiles * batch * heads >= 4 * processors
        items = (triton.cdiv(tiles, 2) if paired else tiles) * batch * heads

        def described(rows: int):
            box = [1, 1, rows, width]
            return lambda x: TensorDescriptor(x, list(x.shape), list(x.stride()), box, LAYOUT)

        self._rows = (batch, heads, n)
        self._launch = Launch(
            forward_kernel,
            (min(items, processors),),
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
        """out [b, h, n, d] in q's dtype and, where q is dense, layout; lse [b, h, n] float32."""
        out = torch.empty_like(q)
        lse = torch.empty(self._rows, dtype=torch.float32, device=q.device)
        self._launch(q, k, v, out, lse, *self._scalars)
        return out, lse
