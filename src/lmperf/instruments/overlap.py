"""Profiles steps of a group of ranks for the overlap ledger (`lmperf.distributed.ledger`).

On CUDA the times are those of the device: the kernels of NCCL are the communication, all other
kernels, copies and memsets the computation. The profiler puts the devices of a host on one clock.
It records nothing but these kernels while steps are timed: recording the host's operators as well
slowed a compiled step of 3.4B on an H200 from 124 to 205 ms, since the host could not keep up.

gloo works in threads of the host and has no device times. There the communication is what these
threads do, and a rank computes whenever its other threads do not wait for a collective. On CUDA a
device that idles while the host prepares the next kernel does not compute; on a CPU the host's own
work counts as computation, since the collectives proceed meanwhile.

Calls and bytes are counted from the collectives that the backend ran in one more step, under a
profiler of host and device. The trace of that step can be kept. In a CUDA graph the backend runs
none: calls are the kernels of NCCL, and bytes are not known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from lmperf.benchmark import Rank
from lmperf.distributed.ledger import ALL_GATHER, Collective, RankStep, unless_waiting
from lmperf.measuring.device_time import (
    NCCL_KERNEL,
    ON_DEVICE,
    Event,
    Interval,
    complete_events,
    on_device,
    read_trace,
    union,
)

# A host's pause counts as waiting up to this long before the end of a collective is recorded.
LATE_MS = 0.1
# Largest difference between the clocks of the profiler and of the host.
CLOCK_MS = 0.1
# Collective, as the backends name it -> its name here, and the bytes that a rank sends by a ring
# over those of its input, for n ranks.
_SENT: Mapping[str, tuple[str, Callable[[int], float]]] = {
    "all_reduce": ("all_reduce", lambda n: 2 * (n - 1) / n),
    "all_gather": (ALL_GATHER, lambda n: n - 1),
    "_all_gather_base": (ALL_GATHER, lambda n: n - 1),
    "all_gather_into_tensor_coalesced": (ALL_GATHER, lambda n: n - 1),
    "reduce_scatter": ("reduce_scatter", lambda n: (n - 1) / n),
    "_reduce_scatter_base": ("reduce_scatter", lambda n: (n - 1) / n),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", lambda n: (n - 1) / n),
    "broadcast": ("broadcast", lambda n: (n - 1) / n),
}
# Collective, as the kernels of NCCL name it -> its name here.
_KERNELS = {
    "AllReduce": "all_reduce",
    "AllGather": ALL_GATHER,
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
}
# Words of the profiler for dtypes -> bytes of an element.
_ELEMENT = {"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2}
_ELEMENT |= {"long int": 8, "long": 8, "int": 4, "unsigned char": 1, "signed char": 1, "bool": 1}


@dataclass(frozen=True)
class Observed:
    """A step of all ranks: what each did, and what this rank's backend ran.

    Attributes:
        ranks: one for each rank, in order; times in ms, from the beginning of the step on.
        calls: number of collectives of this rank.
        sent_bytes: bytes that this rank sends in them by a ring; of a broadcast, the mean over the
            ranks. None: not known.
    """

    ranks: Sequence[RankStep]
    calls: int
    sent_bytes: float | None


def observed(
    run: Callable[[], object], rank: Rank, steps: int, kept: Path | None = None
) -> list[Observed]:
    """Run a step several times on every rank under the profiler; return what all ranks did.

    The step runs `steps + 1` times. kept: where to store the trace of this rank (gzip); None:
    nowhere.

    Raises:
        KeyError: the backend ran a collective, or on a dtype, that this module does not know.
        RuntimeError: the profiler's times do not fit those of the host.
    """
    (step,) = _profiled(run, rank, 1, with_host=True, kept=kept)
    ran = _ran(step, rank)
    profiled = _profiled(run, rank, steps, with_host=rank.device != "cuda")
    mine = [_of_rank(step, rank.device) for step in profiled]
    ranks: list[Any] = [None] * rank.ranks
    dist.all_gather_object(ranks, mine)
    return [Observed(_from_the_first(step), *ran) for step in zip(*ranks, strict=True)]


def _ran(step: _Profiled, rank: Rank) -> tuple[int, float | None]:
    """Number of collectives that this rank's backend ran in a step, and the bytes it sends."""
    ran = [
        event
        for event in step.events
        if event.get("cat") == "user_annotation" and event["name"].startswith(f"{rank.backend}:")
    ]
    if not ran and rank.device == "cuda":
        _, transfers = on_device(step.events)
        return len(transfers), None
    return len(ran), math.fsum(_sent_bytes(event, rank.ranks) for event in ran)


@dataclass(frozen=True)
class _Profiled:
    """A step of this rank under the profiler.

    Attributes:
        span: start and end in ms of the host's clock.
        events: complete events of the trace that start in it.
        began: ms of the host's clock at which the times of the trace begin.
    """

    span: Interval
    events: Sequence[Event]
    began: float

    def interval(self, event: Event) -> Interval:
        start = self.began + event["ts"] / 1e3
        return start, start + event["dur"] / 1e3


def _profiled(
    run: Callable[[], object], rank: Rank, steps: int, with_host: bool, kept: Path | None = None
) -> list[_Profiled]:
    """Run steps under the profiler.

    with_host: whether to record operators of the host and the shapes of their inputs.
    """
    activities = [ProfilerActivity.CPU] if with_host else []
    activities += [ProfilerActivity.CUDA] if rank.device == "cuda" else []
    spans = []
    with profile(activities=activities, record_shapes=with_host) as profiler:
        for _ in range(steps):
            dist.barrier()
            _synchronize(rank)
            start = time.time_ns()
            run()
            _synchronize(rank)
            spans.append((start / 1e6, time.time_ns() / 1e6))
    return steps_of(read_trace(profiler, kept), spans)


def steps_of(trace: Mapping[str, Any], spans: Sequence[Interval]) -> list[_Profiled]:
    """Divide the events of a Chrome trace among steps.

    spans: start and end of each step in ms of the host's clock.

    Raises:
        RuntimeError: work of the device goes on beyond the end of a step, although the host waited
            for it: the clocks differ.
    """
    began = trace.get("baseTimeNanoseconds", 0) / 1e6
    complete = complete_events(trace)
    divided = []
    for start, end in spans:
        inside = [e for e in complete if start <= began + e["ts"] / 1e3 < end]
        step = _Profiled((start, end), inside, began)
        device = [step.interval(e)[1] for e in inside if e.get("cat") in ON_DEVICE]
        if device and max(device) > end + CLOCK_MS:
            late = max(device) - end
            raise RuntimeError(f"by the profiler, a kernel ends {late:.3f} ms after its step")
        divided.append(step)
    return divided


def _synchronize(rank: Rank) -> None:
    if rank.device == "cuda":
        torch.cuda.synchronize()


def _of_rank(step: _Profiled, device: str) -> RankStep:
    """What this rank did, in ms of the host's clock."""
    if device == "cuda":
        computing, transfers = on_device(step.events)
        busy = union(map(step.interval, computing))
        return RankStep(step.span, _collectives(step, transfers, _kernel_kind), busy)
    transfers = [e for e in step.events if e["name"].startswith("gloo:")]
    threads = {e["tid"] for e in transfers}
    busy = union(
        step.interval(e)
        for e in step.events
        if e.get("cat") == "cpu_op" and e["name"].startswith("aten::") and e["tid"] not in threads
    )
    collectives = _collectives(step, transfers, _gloo_kind)
    ends = [collective.end for collective in collectives]
    return RankStep(step.span, collectives, unless_waiting(busy, step.span, ends, LATE_MS))


def _collectives(
    step: _Profiled, events: Sequence[Event], kind: Callable[[str], str]
) -> list[Collective]:
    ordered = sorted(events, key=lambda event: event["ts"])
    return [Collective(kind(event["name"]), *step.interval(event)) for event in ordered]


def _kernel_kind(name: str) -> str:
    """`all_reduce` for a kernel `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`."""
    return _KERNELS[name.removeprefix(NCCL_KERNEL).split("_")[1]]


def _gloo_kind(name: str) -> str:
    return _SENT[name.partition(":")[2]][0]


def _sent_bytes(event: Event, ranks: int) -> float:
    """Bytes that a rank sends in a collective, from the shapes and dtypes of its inputs."""
    _, factor = _SENT[event["name"].partition(":")[2]]
    shapes, dtypes = event["args"]["Input Dims"], event["args"]["Input type"]
    inputs = zip(shapes, dtypes, strict=True)
    return factor(ranks) * sum(math.prod(shape) * _ELEMENT[dtype] for shape, dtype in inputs)


def _from_the_first(ranks: Sequence[RankStep]) -> list[RankStep]:
    """The steps with times from the beginning of the first of them."""
    first = min(rank.span[0] for rank in ranks)

    def moved(interval: Interval) -> Interval:
        return interval[0] - first, interval[1] - first

    return [
        RankStep(
            moved(rank.span),
            [Collective(c.kind, *moved((c.start, c.end))) for c in rank.collectives],
            [moved(interval) for interval in rank.computing],
        )
        for rank in ranks
    ]
