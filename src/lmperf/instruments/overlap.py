"""Profiles steps of a group of ranks for the overlap ledger (`lmperf.distributed.ledger`).

On CUDA the times are those of the device: the kernels of NCCL are the communication, all other
kernels, copies and memsets the computation. The profiler puts the devices of a host on one clock.

gloo works in threads of the host and has no device times. There the communication is what these
threads do, and a rank computes whenever its other threads do not wait for a collective. On CUDA a
device that idles while the host prepares the next kernel does not compute; on a CPU the host's own
work counts as computation, since the collectives proceed meanwhile.

Calls and bytes are counted from the collectives that the backend ran.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from lmperf.benchmark import Rank
from lmperf.distributed.ledger import (
    ALL_GATHER,
    Collective,
    Interval,
    RankStep,
    union,
    unless_waiting,
)
from lmperf.instruments.profiling import ON_DEVICE, Event

STEP = "lmperf: step"
NCCL_KERNEL = "ncclDevKernel"
# A host's pause counts as waiting up to this long before the end of a collective is recorded.
LATE_MS = 0.1
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
            ranks.
    """

    ranks: Sequence[RankStep]
    calls: int
    sent_bytes: float


def observed(
    run: Callable[[], object], rank: Rank, steps: int, kept: Path | None = None
) -> list[Observed]:
    """Run a step several times on every rank under the profiler; return what all ranks did.

    kept: where to store the trace of this rank (gzip); None: nowhere.

    Raises:
        KeyError: the backend ran a collective, or on a dtype, that this module does not know.
    """
    trace = _profiled(run, rank, steps, kept)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and "dur" in e]
    spans = sorted(
        (e for e in events if _is_annotation(e) and e["name"] == STEP), key=lambda e: e["ts"]
    )
    insides = [
        [e for e in events if span["ts"] <= e["ts"] < span["ts"] + span["dur"]] for span in spans
    ]
    began = trace.get("baseTimeNanoseconds", 0) / 1e6
    mine = [
        _on_clock(_of_rank(*one, rank.device), began) for one in zip(spans, insides, strict=True)
    ]
    ranks: list[Any] = [None] * rank.ranks
    dist.all_gather_object(ranks, mine)
    return [
        Observed(_from_the_first(step), *_ran(inside, rank))
        for step, inside in zip(zip(*ranks, strict=True), insides, strict=True)
    ]


def _ran(inside: Sequence[Event], rank: Rank) -> tuple[int, float]:
    """Number of collectives that this rank's backend ran, and the bytes that it sends in them."""
    ran = [e for e in inside if _is_annotation(e) and e["name"].startswith(f"{rank.backend}:")]
    return len(ran), math.fsum(_sent_bytes(event, rank.ranks) for event in ran)


def _profiled(
    run: Callable[[], object], rank: Rank, steps: int, kept: Path | None
) -> dict[str, Any]:
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if rank.device == "cuda" else []
    with profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(steps):
            _synchronize(rank)
            dist.barrier()
            with record_function(STEP):
                run()
                _synchronize(rank)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        text = path.read_bytes()
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(gzip.compress(text, mtime=0))
    return json.loads(text)


def _synchronize(rank: Rank) -> None:
    if rank.device == "cuda":
        torch.cuda.synchronize()


def _of_rank(step: Event, inside: Sequence[Event], device: str) -> RankStep:
    """What this rank did, in ms of its trace."""
    span = _interval(step)
    if device == "cuda":
        kernels = [e for e in inside if e.get("cat") in ON_DEVICE]
        transfers = [e for e in kernels if e["name"].startswith(NCCL_KERNEL)]
        others = [e for e in kernels if not e["name"].startswith(NCCL_KERNEL)]
        return RankStep(span, _collectives(transfers, _kernel_kind), union(map(_interval, others)))
    transfers = [e for e in inside if e["name"].startswith("gloo:")]
    threads = {e["tid"] for e in transfers}
    busy = [
        _interval(e)
        for e in inside
        if e.get("cat") == "cpu_op" and e["name"].startswith("aten::") and e["tid"] not in threads
    ]
    collectives = _collectives(transfers, _gloo_kind)
    ends = [one.end for one in collectives]
    return RankStep(span, collectives, unless_waiting(union(busy), span, ends, LATE_MS))


def _is_annotation(event: Event) -> bool:
    """Whether an event is a range on the host; the profiler repeats such ranges on the device."""
    return event.get("cat") == "user_annotation"


def _interval(event: Event) -> Interval:
    return event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3


def _collectives(events: Sequence[Event], kind: Callable[[str], str]) -> list[Collective]:
    ordered = sorted(events, key=lambda event: event["ts"])
    return [Collective(kind(event["name"]), *_interval(event)) for event in ordered]


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


def _on_clock(step: RankStep, began: float) -> RankStep:
    """The step with its times moved by `began` ms."""

    def moved(one: Interval) -> Interval:
        return one[0] + began, one[1] + began

    collectives = [Collective(c.kind, *moved((c.start, c.end))) for c in step.collectives]
    return RankStep(moved(step.span), collectives, [moved(one) for one in step.computing])


def _from_the_first(ranks: Sequence[RankStep]) -> list[RankStep]:
    """The steps with times from the beginning of the first of them."""
    first = min(rank.span[0] for rank in ranks)
    return [_on_clock(rank, -first) for rank in ranks]
