"""Run a function on a group of processes with a GPU each, and collect what they return."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from lmperf.benchmark import Rank


def on_gpus(ranks: int, function: Callable[[Rank], Any]) -> list[Any]:
    """Return what `function(rank)` returned on each rank of a group, in the order of the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_run, (ranks, function, folder), nprocs=ranks)
        return [torch.load(Path(folder) / f"{n}.pt", weights_only=False) for n in range(ranks)]


def _run(number: int, ranks: int, function: Callable[[Rank], Any], folder: str) -> None:
    torch.cuda.set_device(number)
    rendezvous = f"file://{folder}/rendezvous"
    device = torch.device("cuda", number)
    dist.init_process_group("nccl", rendezvous, rank=number, world_size=ranks, device_id=device)
    torch.save(function(Rank(number, ranks, "cuda", "nccl")), Path(folder) / f"{number}.pt")
    dist.barrier()
    dist.destroy_process_group()
