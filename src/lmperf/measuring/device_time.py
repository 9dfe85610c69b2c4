"""How long a GPU works in a call: the kernels, copies and fills that CUPTI records.

Unlike the time of the call, this hardly depends on the host: gaps in which the device waits for
its next kernel do not count. Nothing but work of the device is recorded, since recording the host's
operators as well would slow calls down.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# The name of a kernel of NCCL begins with this.
NCCL_KERNEL = "ncclDevKernel"
# A step waits for its host if the device works for less than this share of its time.
HOST_BOUND = 0.9
CALLS = 3

Event = Mapping[str, Any]
# (start, end) in one unit of time.
Interval = tuple[float, float]


@dataclass(frozen=True)
class DeviceTime:
    """What a device did in a call.

    Attributes:
        device_ms: ms in which it computed, copied or filled memory.
        communication_ms: ms in which kernels of NCCL ran; they also wait for other ranks.
        busy_ms: ms in which it did either.
        launches: number of kernels, copies and fills.
    """

    device_ms: float
    communication_ms: float
    busy_ms: float
    launches: int

    def columns(self, step_ms: float) -> dict[str, Any]:
        """The columns of a row, for a step that takes `step_ms`."""
        columns = {"device_ms": self.device_ms, "launches": self.launches}
        if self.communication_ms:
            columns["communication_ms"] = self.communication_ms
        return {**columns, "bound": "host" if self.busy_ms < HOST_BOUND * step_ms else "device"}


def device_time(prepare: Callable[[], Callable[[], object]], calls: int = CALLS) -> DeviceTime:
    """Run calls on CUDA, each alone under the profiler, and return the median of what it recorded.

    prepare: prepares a call and returns it; what it does on the device is not recorded.
    """
    times = [of_events(_recorded(prepare())) for _ in range(calls)]
    names = ("device_ms", "communication_ms", "busy_ms")
    medians = {name: median(getattr(time, name) for time in times) for name in names}
    return DeviceTime(**medians, launches=int(median(time.launches for time in times)))


def _recorded(call: Callable[[], object]) -> list[Event]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    return complete_events(read_trace(profiler))


def of_events(events: Iterable[Event]) -> DeviceTime:
    """What the device did in the complete events of a trace, whose times are microseconds."""
    computing, communicating = _divided(events)
    both = [*computing, *communicating]
    return DeviceTime(_union_ms(computing), _union_ms(communicating), _union_ms(both), len(both))


def on_device(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """The events of the device: those in which it computes, copies or fills, and those of NCCL.

    Raises:
        RuntimeError: it computed nothing in a train step: the profiler has lost its events.
    """
    computing, communicating = _divided(events)
    if not computing:
        raise RuntimeError("the profiler recorded no kernel of a train step")
    return computing, communicating


def _divided(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    computing, communicating = [], []
    for event in events:
        if event.get("cat") in ON_DEVICE:
            is_transfer = event["name"].startswith(NCCL_KERNEL)
            (communicating if is_transfer else computing).append(event)
    return computing, communicating


def _union_ms(events: Iterable[Event]) -> float:
    spans = union((event["ts"], event["ts"] + event["dur"]) for event in events)
    return sum(end - start for start, end in spans) / 1e3


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint intervals in order; empty ones are left out."""
    merged: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def complete_events(trace: Mapping[str, Any]) -> list[Event]:
    """The events of a Chrome trace that have a duration."""
    return [e for e in trace["traceEvents"] if e.get("ph") == "X" and "dur" in e]


def read_trace(profiler: Any, kept: Path | None = None) -> dict[str, Any]:
    """The Chrome trace of a `torch.profiler.profile`; its `events()` take 2.6 times as long.

    kept: where to store the trace (gzip); None: nowhere.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        text = path.read_bytes()
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(".part")
        part.write_bytes(gzip.compress(text, mtime=0))
        os.replace(part, kept)
    return json.loads(text)
