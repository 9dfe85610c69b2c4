"""What this machine can do: copy bandwidth, and the rate of a large matmul in each dtype.

Every other section is held against these ceilings, which are measured in the same run.
"""

from __future__ import annotations

import contextlib
from functools import partial

from lmperf.benchmark import DTYPES, Axis, Case, Phase, Timed, Unsupported, Workload

_COPY_BYTES = {"cpu": 256 * 2**20, "gpu": 4 * 2**30}
_MATMUL_SIZE = {"cpu": 2048, "gpu": 8192}


class Ceilings(Timed):
    title = "Ceilings"
    section = "method"
    axes = (
        Axis("operation", str, ("copy", "matmul")),
        Axis("dtype", str, DTYPES[:4]),
    )
    grids = {
        "cpu": [
            {"operation": ["copy"], "dtype": ["float32"], "implementation": ["torch"]},
            {
                "operation": ["matmul"],
                "dtype": ["float32", "bfloat16"],
                "implementation": ["torch"],
            },
        ],
        "gpu": [
            {"operation": ["copy"], "dtype": ["float32"], "implementation": ["torch"]},
            {"operation": ["matmul"], "dtype": list(DTYPES[:4]), "implementation": ["torch"]},
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch

        from lmperf.precision import precision, storage_dtype

        operation, dtype = case.axes["operation"], case.axes["dtype"]
        if dtype == "tf32" and device != "cuda":
            raise Unsupported("TF32 is a mode of NVIDIA's matrix units")
        preset = "gpu" if device == "cuda" else "cpu"
        generator = torch.Generator(device).manual_seed(seed)
        normal = partial(
            torch.randn, generator=generator, device=device, dtype=storage_dtype(dtype)
        )
        if operation == "copy":
            source = normal(_COPY_BYTES[preset] // storage_dtype(dtype).itemsize)
            target = torch.empty_like(source)
            phase = Phase(lambda _: target.copy_(source), bytes=2 * source.nbytes)
        else:
            n = _MATMUL_SIZE[preset]
            a, b = normal(n, n), normal(n, n)
            out = torch.empty(n, n, device=device, dtype=a.dtype)
            phase = Phase(lambda _: torch.mm(a, b, out=out), flops=2 * n**3, bytes=3 * a.nbytes)
        context = partial(precision, dtype) if operation == "matmul" else contextlib.nullcontext
        return Workload({"forward": phase}, context=context)
