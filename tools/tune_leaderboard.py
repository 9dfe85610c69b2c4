"""Time the leaderboard's step of `distributed_leaderboard` by strategy and number of kept matmuls.

    torchrun --nproc-per-node 2 tools/tune_leaderboard.py sharded:32 fused:32 whole:25

makes three steps for each argument, STRATEGY:BLOCKS, and prints the times of the last two, the
FLOP/s of a GPU and the peak memory, the largest over the ranks. Strategies: `whole` (all moments on
every rank), `sharded` (moments sharded), `fused` (also fused blocks). BLOCKS: how many blocks keep
the results of their matmuls. Takes about a minute for each argument, most of it to compile.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

import torch
import torch.distributed as dist

from lmperf.benchmark import Rank
from lmperf.distributed.leaderboard import RankProblem
from lmperf.transformer.checkpointing import ATTENTION
from lmperf.transformer.flops import flops
from lmperf.transformer.leaderboard import kept_by_block
from lmperf.transformer.sizes import LEADERBOARD

STRATEGIES = {
    "whole": {},
    "sharded": {"sharded": True},
    "fused": {"sharded": True, "fused": True},
}
STEPS = 3


def _variant(text: str) -> tuple[str, int]:
    name, _, blocks = text.partition(":")
    if name not in STRATEGIES or not blocks.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: must be {'|'.join(STRATEGIES)}:BLOCKS")
    return name, int(blocks)


def seconds(rank: Rank, name: str, blocks: int) -> list[float]:
    """Seconds of each step, on this rank."""
    problem = RankProblem(LEADERBOARD, rank, 0, **STRATEGIES[name])
    step = problem.step(kept_by_block(LEADERBOARD.size.num_layers, ATTENTION, blocks))
    found = []
    for number in range(STEPS):
        problem.freshen(number)
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found


def largest(*values: float) -> list[float]:
    """The largest over the ranks of each value."""
    found = torch.tensor(values, device="cuda", dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="+", type=_variant, metavar="STRATEGY:BLOCKS")
    variants = parser.parse_args().variants
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    rank = Rank(dist.get_rank(), dist.get_world_size(), "cuda", "nccl")
    shape = LEADERBOARD
    work = flops(shape.size, shape.context, shape.batch, "train_step", shape.vocab) / rank.ranks
    for name, blocks in variants:
        torch.cuda.reset_peak_memory_stats()
        try:
            first, *times = seconds(rank, name, blocks)
        except torch.OutOfMemoryError as error:  # the other ranks wait: end them as well
            print(f"{name}:{blocks} rank {rank.number}: {error}", flush=True)
            os._exit(1)
        first, *times, peak = largest(first, *times, torch.cuda.max_memory_allocated() / 2**30)
        if rank.number == 0:
            tflops = work / min(times) / 1e12
            words = ", ".join(f"{one:.3f}" for one in times)
            print(
                f"{name}:{blocks} {words} s, {tflops:.0f} TFLOP/s, {peak:.1f} GiB"
                f" (first step {first:.0f} s)",
                flush=True,
            )
        gc.collect()
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
