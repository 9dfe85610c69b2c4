"""Runs in a rank: a process of a group that measures the cases of a ranked benchmark together.

The worker that owns the group sends every rank the same requests; each request has one reply:
`done` with the result, `unsupported` or `wrong` with a message, or `failed` with a row's columns.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from lmperf.benchmark import Rank
from lmperf.measuring import follow
from lmperf.measuring.faults import failure_row
from lmperf.measuring.lockstep import NEVER
from lmperf.measuring.rank_serving import RankServing

_ADDRESS = "127.0.0.1"
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_ENVIRONMENT = {
    # The ranks are on one machine; its name may resolve to an address without a route.
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
    # NVLink multicast hangs or fails in many containers.
    "NCCL_NVLS_ENABLE": "0",
    # The monitor would end a process that was paused while another one was timed.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}


def main(
    connection: Connection,
    owner: int,
    number: int,
    ranks: int,
    device: str,
    port: int,
    threads: int | None,
    cores: Sequence[int],
) -> None:
    """Answer requests until the worker closes the connection; runs in the rank's process.

    Args:
        connection: the rank's end of the pipe to the worker.
        owner: process id of the process that starts the rank.
        number, ranks: the rank and the number of ranks.
        device: cuda or cpu.
        port: port of the store at which the ranks meet.
        threads: threads of operators on a CPU; None: torch's choice.
        cores: the CPU cores that the rank may use; empty: all.
    """
    follow.die_with(owner)
    os.environ.update(_ENVIRONMENT)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        serving = _started(number, ranks, device, port, threads)
        reply: tuple = ("done", os.getpid())
    except Exception as error:
        serving, reply = None, ("failed", failure_row(error))
    connection.send(reply)
    while serving is not None:
        try:
            name, *arguments = connection.recv()
        except (EOFError, OSError):
            break
        connection.send(serving.answer(name, arguments))
    os._exit(0)  # peers may have ended: a process group cannot be closed in order


def _started(number: int, ranks: int, device: str, port: int, threads: int | None) -> RankServing:
    """Join the process group and return what answers the requests."""
    if threads is not None:
        torch.set_num_threads(threads)
    backend, place = "gloo", {}
    if device == "cuda":
        count = torch.cuda.device_count()
        torch.cuda.set_device(number % count)
        if count >= ranks:  # NCCL refuses two ranks on one device
            backend, place = "nccl", {"device_id": torch.device("cuda", number)}
    store = dist.TCPStore(_ADDRESS, port, is_master=False, timeout=NEVER)
    dist.init_process_group(
        backend, store=store, rank=number, world_size=ranks, timeout=NEVER, **place
    )
    serving = RankServing(Rank(number, ranks, device, backend))
    gc.freeze()  # later garbage collections skip the imported modules
    return serving
