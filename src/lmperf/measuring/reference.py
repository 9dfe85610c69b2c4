"""The reference cell: one matmul and one copy of a fixed size, timed before, amid and after.

Its times say whether the machine is still what it was: they belong to no benchmark, and what is
timed has no say in them. It runs in the worker, between slices; about 0.1 s a call. How far they
may move, `DRIFT`, stands with what the supervisor, which has no torch, judges: `state.drift`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from lmperf.measuring.clock import synchronizer

Times = tuple[float, float]

# A millisecond at the clock of present devices, in which a host with slow cores queues the call,
# too: what is timed is the device alone.
_LEAD_CYCLES = 2_000_000


@dataclass(frozen=True)
class _Cell:
    """Sizes of the reference cell on a device, and the calls of which the least is taken.

    The matmul is of two square matrices; the copy reads and writes `copy_bytes` in all, more than
    any present cache. A device that was idle needs `warm_up_ms` to come back to its clock.
    """

    side: int
    dtype: torch.dtype
    copy_bytes: int
    calls: int
    warm_up_ms: float


_CELLS = {
    "cpu": _Cell(1024, torch.float32, 128 * 2**20, 7, 0.0),
    "cuda": _Cell(4096, torch.bfloat16, 512 * 2**20, 15, 60.0),
    "mps": _Cell(2048, torch.float32, 256 * 2**20, 5, 20.0),
}


def measure(device: str) -> Times:
    """Milliseconds of the matmul and of the copy on a device (cuda, mps or cpu).

    Each is the least of a few calls, since what disturbs a call makes it longer.
    """
    cell = _CELLS[device]
    matmul, copy = _calls(device)
    clock = _event_ms if device == "cuda" else _wall_ms
    synchronize = synchronizer(device)
    began = time.perf_counter()
    while (time.perf_counter() - began) * 1e3 < cell.warm_up_ms:
        matmul()
        synchronize()
    return tuple(
        min(clock(call, synchronize) for _ in range(cell.calls)) for call in (matmul, copy)
    )


def release() -> None:
    """Give up the tensors; the next call allocates them anew."""
    _calls.cache_clear()


@cache
def _calls(device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    cell = _CELLS[device]
    generator = torch.Generator(device).manual_seed(0)  # not the one of what is measured

    def normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype, device=device, generator=generator)

    # What a device draws, and so its clock, depends on the values: ones would be cheaper.
    left, right, product = (normal(cell.side, cell.side, dtype=cell.dtype) for _ in range(3))
    source, target = (normal(cell.copy_bytes // 8, dtype=torch.float32) for _ in range(2))

    def matmul() -> object:
        return torch.mm(left, right, out=product)

    def copy() -> object:
        return target.copy_(source)

    for call in (matmul, copy):  # a first call allocates, and chooses its kernel
        call()
    return matmul, copy


def _wall_ms(call: Callable[[], object], synchronize: Callable[[], object]) -> float:
    synchronize()
    began = time.perf_counter_ns()
    call()
    synchronize()
    return (time.perf_counter_ns() - began) / 1e6


def _event_ms(call: Callable[[], object], synchronize: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronize()
    torch.cuda._sleep(_LEAD_CYCLES)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
