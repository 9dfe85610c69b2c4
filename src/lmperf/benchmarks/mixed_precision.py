"""The benchmark of mixed precision: rounding errors of long sums, tensor dtypes under autocast."""

from __future__ import annotations

from functools import partial
from typing import Any

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Observed, grid, numbers, texts

_SUMS = {
    "float32 + float32": ("float32", "float32", False),
    "float16 + float16": ("float16", "float16", False),
    "float32 + float16": ("float32", "float16", False),
    "float32 + float32(float16)": ("float32", "float16", True),
    "bfloat16 + bfloat16": ("bfloat16", "bfloat16", False),
    "float32 + bfloat16": ("float32", "bfloat16", False),
    "float32 + float32(bfloat16)": ("float32", "bfloat16", True),
}
_ADDITIONS, _ADDEND = 1000, 0.01
_16_BIT = ["float16", "bfloat16"]
_dtypes = partial(grid, experiment="dtypes", dtype=_16_BIT)
_GRID = [
    grid(
        experiment="accumulation",
        subject=list(_SUMS),
        dtype=[*_16_BIT, "float32"],
        implementation="eager",
    ),
    _dtypes(subject=["toy", "transformer_block"], implementation="eager"),
]
_HEAD = [
    {"experiment": ["accumulation"]},
    {"subject": ["transformer_block"], "implementation": ["eager"]},
]
# On a CPU, compiling takes longer than the rest of this benchmark.
_COMPILED = _dtypes(subject=["toy", "transformer_block"], implementation="compiled")


class MixedPrecision(Observed):
    title = "Mixed precision"
    order = 20
    columns = (
        *texts("tensor", "kind", "observed_dtype"),
        *numbers("value", "exact", signed=True),
    )
    results = ("value", "observed_dtype")
    stated = {"additions": _ADDITIONS, "addend": _ADDEND}
    axes = (
        Axis("experiment", str, ("accumulation", "dtypes")),
        Axis("subject", str, (*_SUMS, "toy", "transformer_block")),
        dtype_axis(("float32", "float16", "bfloat16")),
    )
    index = ("tensor",)
    implementations = (Implementation("eager"), Implementation("compiled", compiles=True))
    limit_s = 180.0
    grids = {"cpu": _GRID, "gpu": [*_GRID, _COMPILED]}
    head = {"cpu": _HEAD, "gpu": _HEAD}

    def not_applicable(self, axes, implementation) -> bool:
        """Sums, whose dtype is that of their addends, are accumulated; models have dtypes."""
        if axes["experiment"] != "accumulation":
            return axes["subject"] in _SUMS
        return axes["subject"] not in _SUMS or _SUMS[axes["subject"]][1] != axes["dtype"]

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        if case.axes["experiment"] == "accumulation":
            return [self._sum(case.axes["subject"])]
        return self._dtypes(case, device, seed)

    def _sum(self, subject: str) -> dict[str, Any]:
        from lmperf.instruments.dtypes import accumulate
        from lmperf.precision import storage_dtype

        accumulator, addend, upcast = _SUMS[subject]
        dtypes = (storage_dtype(accumulator), storage_dtype(addend))
        value = accumulate(*dtypes, upcast, additions=_ADDITIONS, addend=_ADDEND)
        return {"tensor": "sum", "value": value, "exact": _ADDITIONS * _ADDEND}

    def _dtypes(self, case: Case, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.instruments.dtypes import introspect
        from lmperf.precision import storage_dtype

        compiled = self.implementation(case.implementation).compiles
        if compiled:
            require_compiler(device)
        dtype = storage_dtype(case.axes["dtype"])
        observed = introspect(case.axes["subject"], dtype, compiled, device, seed)
        return [
            {"tensor": tensor, "kind": kind, "observed_dtype": dtype}
            for tensor, kind, dtype in observed
        ]
