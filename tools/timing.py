"""Device times of calls that take turns, for the tools that tune kernels."""

import statistics
from collections.abc import Callable, Sequence

import torch

_WARM_UPS = 3
# More than any L2 cache holds.
_FLUSHED_BYTES = 256 * 2**20
# About 2 ms, in which the host queues the call before the device starts it.
_LEAD_CYCLES = 3_600_000


def median_ms(calls: Sequence[Callable[[], object]], rounds: int = 15) -> list[float]:
    """Median device time of each call in ms; calls take turns and start with a cold L2 cache."""
    scratch = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    times = [[] for _ in calls]
    for i in range(_WARM_UPS + rounds):
        events = []
        for call in calls:
            scratch.zero_()
            torch.cuda._sleep(_LEAD_CYCLES)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            events.append((start, stop))
        torch.cuda.synchronize()
        if i >= _WARM_UPS:
            for per_call, (start, stop) in zip(times, events, strict=True):
                per_call.append(start.elapsed_time(stop))
    return [statistics.median(per_call) for per_call in times]
