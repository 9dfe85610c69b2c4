"""Ranks: processes that measure a case together. All run the same program in lock-step.

Each rank runs `group.Group` as a single process would. Whatever depends on a time or on a failure
is agreed on through the team: times are those of the slowest rank, and a step has failed if it
failed on any rank. A rank that fails alone would leave the others in a collective, so it reports
why and ends; `run` then ends the others, and the supervisor starts anew.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from time import monotonic, perf_counter_ns
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from lmperf.benchmark import CPU_DEVICES, Rank
from lmperf.gate import excess
from lmperf.measuring import processors
from lmperf.measuring.processes import die_with

_NEVER, _ALONE_S = timedelta(days=7), timedelta(seconds=5)
_START_NS = 300_000  # from the agreement on a start until the start
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_ENVIRONMENT = {
    # The ranks are on one machine; its name may resolve to an address without a route.
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
    "NCCL_NVLS_ENABLE": "0",  # NVLink multicast hangs or fails in many containers
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # the supervisor ends ranks that hang
}

Failure = Mapping[str, Any]


class Alone:
    """A team of one process."""

    rank: Rank | None = None
    queues = True  # whether the device starts calls on all ranks at once
    is_first = True
    random: random.Random = random.SystemRandom()

    def longest(self, values: Sequence[float]) -> list[float]:
        """Return each value of the rank where it is the largest."""
        return list(values)

    def seconds(self) -> float:
        """Return a time of the clock that is the same on every rank."""
        return self.longest([monotonic()])[0]

    def shared(self, value: Any) -> Any:
        """Return the value of the first rank."""
        return value

    def start(self) -> None:
        """Return at the same time on every rank, or queue that the devices start together."""

    def agreed(self, failure: Failure | None) -> Failure | None:
        """Return the failure of any rank."""
        return failure

    def largest(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of the first rank, each number as on the rank where it is largest."""
        return columns

    def worst(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of the rank with the largest ratio of error to bound."""
        return columns


class Team(Alone):
    """This process and the other ranks of its group."""

    def __init__(self, rank: Rank, store: dist.Store, tell: Callable[..., None]):
        self.rank, self._store, self._tell = rank, store, tell
        self._group = dist.new_group(backend="gloo", timeout=_NEVER)
        self._token = torch.zeros(1, device=rank.device)
        self._turn = 0
        self.queues, self.is_first = rank.backend == "nccl", rank.number == 0
        seed = torch.tensor([random.SystemRandom().getrandbits(62)])
        dist.broadcast(seed, 0, self._group)
        self.random = random.Random(seed.item())

    def longest(self, values: Sequence[float]) -> list[float]:
        largest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX, self._group)
        return largest.tolist()

    def shared(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, 0, self._group)
        return values[0]

    def start(self) -> None:
        if self.queues:
            dist.all_reduce(self._token)
            return
        start = torch.tensor([perf_counter_ns() + _START_NS])  # one clock for all processes
        dist.all_reduce(start, dist.ReduceOp.MAX, self._group)
        while perf_counter_ns() < start.item():
            pass

    def agreed(self, failure: Failure | None) -> Failure | None:
        self._turn += 1
        names = [f"{self._turn}/{number}" for number in range(self.rank.ranks)]
        self._store.set(names[self.rank.number], json.dumps(failure))
        try:
            self._store.wait(names, _ALONE_S if failure else _NEVER)
        except dist.DistStoreError:
            self._end_alone(failure or {})
        failures = [json.loads(self._store.get(name)) for name in names]
        return next(filter(None, failures), None)

    def _end_alone(self, failure: Failure) -> None:
        who = f"rank {self.rank.number}, but not every rank"
        reason = f"{who}: {failure.get('reason') or failure['status']}"
        self._tell(failed={**failure, "reason": reason})
        os._exit(1)

    def largest(self, columns: dict[str, Any]) -> dict[str, Any]:
        numbers = [name for name, value in columns.items() if type(value) in (int, float)]
        largest = self.longest([columns[name] for name in numbers]) if numbers else []
        return columns | {
            name: type(columns[name])(value) for name, value in zip(numbers, largest, strict=True)
        }

    def worst(self, columns: dict[str, Any]) -> dict[str, Any]:
        gathered: list[Any] = [None] * self.rank.ranks
        dist.all_gather_object(gathered, columns, self._group)
        return max(gathered, key=_excess)


def _excess(columns: Mapping[str, Any]) -> tuple[bool, float]:
    error, bound = columns.get("max_error", 0.0), columns.get("error_bound", 1.0)
    return columns.get("status") != "ok", excess(error, bound)


def run(ranks: int, device: str, main: Callable[[Alone], int], tell: Callable[..., None]) -> int:
    """Call `main(team)` in so many forked processes; return what it returns in the first one.

    Raises:
        ProcessRaisedException, ProcessExitedException: a rank failed; all have ended.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arguments = os.getpid(), ranks, device, store.port, main, tell
    multiprocessing.start_processes(_rank, arguments, ranks, start_method="fork")
    return int(store.get("returned"))


def _rank(number: int, owner: int, ranks: int, device: str, port: int, main: Any, tell: Any):
    die_with(owner)
    os.environ.update(_ENVIRONMENT)
    backend, place = "gloo", {}
    if device == "cuda":
        count = torch.cuda.device_count()
        torch.cuda.set_device(number % count)
        if count >= ranks:  # NCCL refuses two ranks on one device
            backend, place = "nccl", {"device_id": torch.device("cuda", number)}
    else:
        torch.set_num_threads(max(1, processors.threads() // max(ranks, CPU_DEVICES)))
    store = dist.TCPStore("127.0.0.1", port, timeout=_NEVER)
    dist.init_process_group(
        backend, store=store, rank=number, world_size=ranks, timeout=_NEVER, **place
    )
    returned = main(
        Team(Rank(number, ranks, device, backend), dist.PrefixStore("team", store), tell)
    )
    if number == 0:
        store.set("returned", str(returned))
    os._exit(0)  # a process group of which a peer has ended cannot be closed in order
