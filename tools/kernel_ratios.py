"""Times of attention by cuDNN and FlashAttention-4 over ours on this GPU, in bf16.

Above 1 ours is faster. FlashAttention-4 is timed if `flash-attn-4` is installed; it compiles for
9 to 19 s for each head width and mask.

    python tools/kernel_ratios.py                      # about three minutes on an H100
    python tools/kernel_ratios.py --csv ratios.csv     # also a line for each shape
    python tools/kernel_ratios.py --groups "d 64" odd  # these groups of shapes only

Calls take turns and start with a cold L2 cache; the clock is that of `timing.py`, not the report's.
Each line of the table is the geometric mean over its shapes, with a causal mask and without, and
the least of them. Shapes are compiled beforehand, in parallel.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import geometric_mean
from typing import NamedTuple

import torch
import triton
from tabulate import tabulate
from timing import median_ms

from lmperf.attention.library import sdpa
from lmperf.attention.triton import flash_attention
from lmperf.peers import flash_attention_4
from lmperf.peers.table import installed

TOKENS, CHANNELS = 16384, 2048
ROUNDS = 9
PEERS = {"cuDNN": partial(sdpa, backend="CUDNN_ATTENTION")}
if "flash_attention_4" in installed():
    PEERS["FlashAttention-4"] = flash_attention_4.attention
    PEERS["the same, deterministic"] = flash_attention_4.deterministic_attention
    # Its compiled kernels are kept on disk, for all processes.
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")
PHASES = ("forward", "backward", "both")


class Shape(NamedTuple):
    """A shape of q, k and v; transposed: stored as [batch, seq_len, heads, d_head]."""

    group: str
    batch: int
    heads: int
    seq_len: int
    d_head: int
    transposed: bool = False


def filled(group: str, d_head: int, lengths: tuple[int, ...]) -> list[Shape]:
    """Shapes that fill the GPU: TOKENS tokens of CHANNELS channels."""
    return [Shape(group, TOKENS // n, CHANNELS // d_head, n, d_head) for n in lengths]


LENGTHS = (1024, 2048, 4096, 8192, 16384)
SHAPES = (
    *(one for d in (64, 128) for one in filled(f"d {d}", d, LENGTHS)),
    *(one for d in (80, 96, 256) for one in filled(f"d {d}", d, (4096, 16384))),
    Shape("few tiles", 1, 2, 10_000, 128),
    Shape("few tiles", 1, 1, 20_000, 64),
    Shape("few tiles", 1, 4, 4096, 64),
    Shape("few tiles", 1, 16, 2048, 128),
    Shape("odd", 16, 25, 1024, 64, True),
    Shape("odd", 4, 25, 4096, 80, True),
    Shape("odd", 3, 7, 3333, 128),
    Shape("odd", 5, 13, 1777, 64),
    Shape("odd", 2, 40, 2500, 96, True),
    Shape("odd", 1, 12, 9001, 112),
    Shape("odd", 8, 6, 2049, 72),
    Shape("odd", 2, 9, 4100, 256),
    Shape("odd", 8, 12, 777, 64),
)


def inputs(shape: Shape) -> list[torch.Tensor]:
    """q, k, v, which want gradients, and dO."""
    _, batch, heads, seq_len, d_head, transposed = shape
    torch.manual_seed(0)
    sizes = (batch, seq_len, heads, d_head) if transposed else (batch, heads, seq_len, d_head)
    found = [torch.randn(sizes, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    if transposed:
        found = [x.transpose(1, 2) for x in found]
    return [*(x.requires_grad_() for x in found[:3]), found[3]]


def calls(attend, q, k, v, grad_out, causal: bool) -> tuple:
    """The forward pass without what a backward pass needs, and the backward pass."""
    out = attend(q, k, v, causal)

    def forward() -> None:
        with torch.no_grad():
            attend(q, k, v, causal)

    return forward, lambda: torch.autograd.grad(out, (q, k, v), grad_out, retain_graph=True)


def compiled(shape: Shape, causal: bool) -> None:
    """Call each kernel once, so that compilers keep them for all processes."""
    for attend in (flash_attention, *PEERS.values()):
        for call in calls(attend, *inputs(shape), causal):
            call()
    torch.cuda.synchronize()


def ratios(shape: Shape, causal: bool) -> list[tuple[float, float, float]]:
    """Time of each peer over ours: forward, backward, and both together."""
    tensors = inputs(shape)
    timed = [calls(attend, *tensors, causal) for attend in (flash_attention, *PEERS.values())]
    times = median_ms([call for pair in timed for call in pair], ROUNDS)
    ours, *theirs = zip(times[::2], times[1::2], strict=True)
    return [(peer[0] / ours[0], peer[1] / ours[1], sum(peer) / sum(ours)) for peer in theirs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--csv", help="file for a line per shape")
    groups = [*dict.fromkeys(shape.group for shape in SHAPES)]
    parser.add_argument("--groups", nargs="+", choices=groups, default=groups)
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if shape.group in arguments.groups]
    cases = [(shape, causal) for shape in shapes for causal in (True, False)]
    workers = min(12, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(compiled, *zip(*cases, strict=True)))
    found = defaultdict(list)
    rows = []
    for shape, causal in cases:
        values = ratios(shape, causal)
        for peer, of_peer in zip(PEERS, values, strict=True):
            found[peer, shape.group].append(of_peer)
        ratio = [round(value, 4) for of_peer in values for value in of_peer]
        rows.append((*shape, causal, *ratio))
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}\n"
    )
    lines = []
    for (peer, group), of in found.items():
        for phase, values in zip(PHASES, zip(*of, strict=True), strict=True):
            lines.append((peer, group, phase, len(values), geometric_mean(values), min(values)))
    heads = ("over", "shapes", "phase", "cells", "mean", "least")
    print(tabulate(lines, heads, "pipe", floatfmt=".3f"))
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            names = [f"{phase} over {peer}" for peer in PEERS for phase in PHASES]
            csv.writer(file).writerows([(*Shape._fields, "causal", *names), *rows])


if __name__ == "__main__":
    main()
