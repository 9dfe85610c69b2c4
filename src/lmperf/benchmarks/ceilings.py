"""The benchmark of ceilings: how fast this machine runs a matmul, a copy or a tiny kernel alone.

Reports quote other results as shares of these rates. A matmul is timed in two ways: `burst`, single
calls with pauses, so that no power cap slows them; and `sustained`, back to back, as in a model.
Copies are timed for three ratios of bytes read to bytes written, because reads and writes are not
equally fast. On a CPU, one small matmul shows whether bf16 is emulated; see
`lmperf.machine.bf16`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import (
    Axis,
    Case,
    Implementation,
    Phase,
    Timed,
    Unsupported,
    Workload,
    grid,
    numbers,
)
from lmperf.dtypes import MATMULS
from lmperf.machine import bf16

# Length of one timed call of a sustained matmul. At least three such calls run before the first one
# that counts, so a GPU has been busy for more than a second by then.
_SUSTAINED_S = {"cuda": 0.5, "cpu": 0.2}
# With pauses of twice the call, a GPU runs at half its power limit or less on average.
_REST_CALLS, _LONGEST_REST_S = 2.0, 0.02
_ON_CPU = ("float32", "bfloat16")
_SMALL, _LARGE = "1536x1536x1536", "16384x16384x16384"
_FURTHER = ["4096x4096x4096", "8192x8192x8192", "8192x8192x16384", "16384x16384x4096"]
# Copy -> dtypes of its source and target.
_COPIES = {
    "copy": ("float32", "float32"),
    "widen": ("bfloat16", "float32"),
    "narrow": ("float32", "bfloat16"),
}


_part = partial(grid, implementation="torch")
_matmul_part = partial(_part, operation="matmul")


def _copies(elements: int) -> list[dict]:
    return [
        _part(operation=name, dtype=source, shape=str(elements), load="burst")
        for name, (source, _) in _COPIES.items()
    ]


class Ceilings(Timed):
    title = "Ceilings"
    section = "method"
    axes = (
        Axis("operation", str, (*_COPIES, "launch", "matmul")),
        dtype_axis(MATMULS),
        # The shape of a matmul is m x n x k, that of a copy its number of elements.
        Axis("shape", str, pattern=r"^[1-9][0-9]*(x[1-9][0-9]*x[1-9][0-9]*)?$"),
        Axis("load", str, ("burst", "sustained")),
    )
    columns = numbers("calls")
    implementations = (Implementation("torch"),)
    grids = {
        # Copies move up to 256 MiB in all, 4 GiB on a GPU: many times any cache.
        "cpu": [
            *_copies(2**25),
            _matmul_part(dtype=_ON_CPU, shape=[bf16.SHAPE, _SMALL], load="burst"),
            _matmul_part(dtype=_ON_CPU, shape=_SMALL, load="sustained"),
        ],
        "gpu": [
            _part(operation="launch", dtype="float32", shape="1", load="burst"),
            *_copies(2**29),
            _matmul_part(dtype=MATMULS, shape=_LARGE, load=["burst", "sustained"]),
        ],
        "full": [_matmul_part(dtype=MATMULS, shape=_FURTHER, load="burst")],
    }

    head = {
        "cpu": [{"operation": ["matmul"], "load": ["sustained"]}],
        "gpu": [{"operation": ["matmul"], "dtype": ["bfloat16"]}, {"operation": ["copy"]}],
    }
    repeated = {
        "cpu": [{"operation": ["matmul"], "load": ["sustained"]}, {"operation": ["copy"]}],
        "gpu": [
            {"operation": ["matmul"], "dtype": ["bfloat16"], "shape": [_LARGE]},
            {"operation": ["copy"]},
        ],
    }

    def not_applicable(self, axes, implementation: str) -> bool:
        """A matmul has three lengths, others have one; only a matmul is sustained."""
        has_lengths = "x" in axes["shape"]
        if axes["operation"] == "matmul":
            return not has_lengths
        return has_lengths or axes["load"] != "burst"

    def runs_back_to_back(self, case: Case) -> bool:
        return case.axes["load"] == "sustained"

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch

        from lmperf.copies import fastest_copy
        from lmperf.precision import storage_dtype

        axes = case.axes
        draw = partial(_normal, device, torch.Generator(device).manual_seed(seed))
        if axes["operation"] == "matmul":
            return _matmul(axes["dtype"], axes["shape"], axes["load"], device, draw)
        if axes["operation"] == "launch":
            one = draw("float32", 1)
            return Workload({"forward": Phase(lambda _: one.fill_(1.0))})
        elements, (read, written) = int(axes["shape"]), _COPIES[axes["operation"]]
        source = draw(read, elements)
        target = torch.empty_like(source, dtype=storage_dtype(written))
        moved = source.nbytes + target.nbytes
        copy = fastest_copy(target, source)
        return Workload({"forward": Phase(lambda _: copy(), bytes=moved)})


def _normal(device: str, generator, dtype: str, *sizes: int):
    """A tensor of normal random values; a GPU multiplies zeros or repeated values faster."""
    import torch

    from lmperf.precision import storage_dtype

    return torch.randn(sizes, generator=generator, device=device, dtype=storage_dtype(dtype))


def _matmul(dtype: str, shape: str, load: str, device: str, draw: Callable) -> Workload:
    import torch

    from lmperf.precision import precision

    if dtype == "tf32" and device != "cuda":
        raise Unsupported("TF32 is a mode of NVIDIA's matrix units")
    m, n, k = map(int, shape.split("x"))
    a, b = draw(dtype, m, k), draw(dtype, k, n)
    out = torch.empty(m, n, device=device, dtype=a.dtype)
    multiply = partial(torch.mm, a, b, out=out)
    with precision(dtype):
        seconds = _seconds(multiply, device)
    calls, before = 1, _rest(seconds) if device == "cuda" else _nothing
    if load == "sustained":
        calls, before = max(1, round(_SUSTAINED_S[device] / seconds)), _nothing

    def run(_: None):
        for _ in range(calls):
            multiply()
        return out

    phase = Phase(run, before, flops=2 * m * n * k * calls)
    return Workload({"forward": phase}, context=partial(precision, dtype), columns={"calls": calls})


def _seconds(call: Callable[[], object], device: str) -> float:
    """Seconds of one call of `call`, after a first call that loads and selects the kernel."""
    import torch

    synchronize = getattr(torch, device).synchronize
    call()
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start


def _nothing() -> None:
    pass


def _rest(seconds: float) -> Callable[[], None]:
    """Return a function that lets the GPU idle before a timed call that takes `seconds`."""

    def rest() -> None:
        import torch

        torch.cuda.synchronize()
        time.sleep(min(_REST_CALLS * seconds, _LONGEST_REST_S))

    return rest
