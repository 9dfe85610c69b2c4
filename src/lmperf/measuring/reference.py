"""The reference cell: one matmul and one copy of fixed sizes, timed before and after every group.

Changes of its times show that the machine itself has become slower or faster (drift), since the
cell runs no code of a benchmark. It runs in a worker process, between groups, in about 0.1 s.
`state.DRIFT` is the largest change that does not count as drift.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from lmperf.measuring.clock import synchronizer

Times = tuple[float, float]

# Cycles that the GPU waits before a call, about a millisecond: time for a slow host to queue the
# call, so that only device time is measured.
_LEAD_CYCLES = 2_000_000


@dataclass(frozen=True)
class _Cell:
    """Settings of the reference cell (a matmul and a copy) on one kind of device.

    Attributes:
        side: number of rows and of columns of the two matrices that are multiplied.
        dtype: dtype of the matrices.
        copy_bytes: bytes that the copy reads and writes in all; more than current caches hold.
        calls: number of timed calls; the fastest counts.
        warm_up_ms: ms of work before timing, for an idle device to raise its clock.
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
    """Return ms of the reference cell's matmul and copy on a device (cuda, mps or cpu).

    Each time is the minimum of a few calls, since every disturbance makes a call longer.
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
    """Free the tensors of the reference cell; the next `measure` allocates new tensors."""
    _calls.cache_clear()


@cache
def _calls(device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    cell = _CELLS[device]
    generator = torch.Generator(device).manual_seed(0)  # leaves the global generator alone

    def normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype, device=device, generator=generator)

    # Random values: constants draw less power, which would change the clock.
    left, right, product = (normal(cell.side, cell.side, dtype=cell.dtype) for _ in range(3))
    source, target = (normal(cell.copy_bytes // 8, dtype=torch.float32) for _ in range(2))

    def matmul() -> object:
        return torch.mm(left, right, out=product)

    def copy() -> object:
        return target.copy_(source)

    for call in (matmul, copy):  # the first call allocates memory and selects a kernel
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
