"""The references: fixed work that shows how fast the device and the host are at the moment.

The reference cell (one matmul and, on a GPU, one copy of fixed sizes) shows whether the device has
become slower. A loop in Python and, on CUDA, a loop of empty launches show whether the host has:
the time of a host-bound step moves with them, which the reference cell does not see. They run no
code of a benchmark, in a worker process, and take about 0.1 s. `lmperf.measuring.readings` judges
the times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from lmperf.measuring.clock import now, synchronizer
from lmperf.measuring.readings import Reading

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
            None: no copy, because the memory of a virtual machine has several usual speeds.
        calls: number of timed calls; the fastest counts.
        warm_up_ms: ms of work before timing, for an idle device to raise its clock.
    """

    side: int
    dtype: torch.dtype
    copy_bytes: int | None
    calls: int
    warm_up_ms: float


_CELLS = {
    "cpu": _Cell(1024, torch.float32, None, 7, 0.0),
    "cuda": _Cell(4096, torch.bfloat16, 512 * 2**20, 15, 60.0),
    "mps": _Cell(2048, torch.float32, 256 * 2**20, 5, 20.0),
}


# Launches of an empty kernel in one loop: fewer than the 1,024 that a stream can hold, so that the
# loop never waits for the device. About 6 ms.
_LAUNCHES = 1000
# Additions in one loop in Python: about 1.2 ms.
_ADDITIONS = 40_000
# Repeats of each loop; the fastest counts. On two cores of an idle virtual machine a single Python
# loop took over 1.15 times its best in 9 % of cases, the fastest of ten in 1.5 %.
_LAUNCH_LOOPS, _PYTHON_LOOPS = 5, 10


def measure(device: str) -> Reading:
    """Return the times of all references on a device (cuda, mps or cpu).

    Each time is the minimum of a few calls, since every disturbance makes a call longer.
    """
    matmul_ms, copy_ms = _cell_times(device)
    host = measure_host(device)
    return Reading(matmul_ms, copy_ms, host.launch_us, host.python_us)


def measure_host(device: str) -> Reading:
    """Return the times of the host's references only, in about 0.05 s."""
    launch_us = min(_launch_us() for _ in range(_LAUNCH_LOOPS)) if device == "cuda" else None
    return Reading(None, None, launch_us, min(_python_us() for _ in range(_PYTHON_LOOPS)))


def _launch_us() -> float:
    one = torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    began = now()
    for _ in range(_LAUNCHES):
        one.fill_(1.0)
    torch.cuda.synchronize()
    return (now() - began) / 1e3 / _LAUNCHES


def _python_us() -> float:
    total, began = 0, now()
    for number in range(_ADDITIONS):
        total += number & 7
    return (now() - began) / 1e3


def _cell_times(device: str) -> tuple[float, float | None]:
    cell = _CELLS[device]
    matmul, copy = _calls(device)
    clock = _event_ms if device == "cuda" else _wall_ms
    synchronize = synchronizer(device)
    began = now()
    while (now() - began) / 1e6 < cell.warm_up_ms:
        matmul()
        synchronize()
    matmul_ms, copy_ms = (
        min(clock(call, synchronize) for _ in range(cell.calls)) if call else None
        for call in (matmul, copy)
    )
    return matmul_ms, copy_ms


def release() -> None:
    """Free the tensors of the reference cell; the next `measure` allocates new tensors."""
    _calls.cache_clear()


@cache
def _calls(device: str) -> tuple[Callable[[], object], Callable[[], object] | None]:
    cell = _CELLS[device]
    generator = torch.Generator(device).manual_seed(0)  # leaves the global generator alone

    def normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype, device=device, generator=generator)

    # Random values: constants draw less power, which would change the clock.
    left, right, product = (normal(cell.side, cell.side, dtype=cell.dtype) for _ in range(3))

    def matmul() -> object:
        return torch.mm(left, right, out=product)

    matmul()  # the first call allocates memory and selects a kernel
    if cell.copy_bytes is None:
        return matmul, None
    source, target = (normal(cell.copy_bytes // 8, dtype=torch.float32) for _ in range(2))

    def copy() -> object:
        return target.copy_(source)

    copy()
    return matmul, copy


def _wall_ms(call: Callable[[], object], synchronize: Callable[[], object]) -> float:
    synchronize()
    began = now()
    call()
    synchronize()
    return (now() - began) / 1e6


def _event_ms(call: Callable[[], object], synchronize: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronize()
    torch.cuda._sleep(_LEAD_CYCLES)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
