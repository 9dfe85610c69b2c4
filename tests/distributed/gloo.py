"""Run a function on a group of gloo processes, and collect what each of them returns."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from lmperf.benchmark import Rank


def on_ranks(ranks: int, function: Callable[[Rank], Any]) -> list[Any]:
    """Return what `function(rank)` returned on each rank of a group, in the order of the ranks.

    function: of a module that the processes can import.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_run, (ranks, function, folder), nprocs=ranks)
        return [torch.load(_result(folder, n), weights_only=False) for n in range(ranks)]


def _run(number: int, ranks: int, function: Callable[[Rank], Any], folder: str) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # what is imported: gates collect garbage often
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=number, world_size=ranks)
    torch.save(function(Rank(number, ranks, "cpu", "gloo")), _result(folder, number))
    dist.barrier()
    dist.destroy_process_group()


def _result(folder: str, number: int) -> Path:
    return Path(folder) / f"{number}.pt"
