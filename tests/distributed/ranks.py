"""Run a function on a group of processes, and collect what each of them returns."""

from __future__ import annotations

import gc
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from lmperf.benchmark import Rank


def on_ranks(ranks: int, function: Callable[[Rank], Any], device: str = "cpu") -> list[Any]:
    """Return what `function(rank)` returned on each rank of a group, in the order of the ranks.

    function: of a module that the processes can import. device: `cpu` (gloo), or `cuda` (NCCL, a
    GPU for each rank).
    """
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_run, (ranks, function, device, folder), nprocs=ranks)
        return [torch.load(_result(folder, n), weights_only=False) for n in range(ranks)]


def _run(number: int, ranks: int, function: Callable[[Rank], Any], device: str, folder: str):
    backend, place = "gloo", {}
    if device == "cuda":
        torch.cuda.set_device(number)
        backend, place = "nccl", {"device_id": torch.device("cuda", number)}
    torch.set_num_threads(1)
    for name in ("torch._dynamo", "torch.distributed.fsdp"):
        importlib.import_module(name)
    gc.freeze()  # what is imported: gates collect garbage often
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group(backend, rendezvous, rank=number, world_size=ranks, **place)
    torch.save(function(Rank(number, ranks, device, backend)), _result(folder, number))
    dist.barrier()
    dist.destroy_process_group()


def _result(folder: str, number: int) -> Path:
    return Path(folder) / f"{number}.pt"
