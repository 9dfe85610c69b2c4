"""The benchmark that finds the first sequence length at which plain attention is out of memory.

The length is predicted from the free memory. On a GPU a forward of that length is then run.
"""

from __future__ import annotations

from typing import Any

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Observed, grid, numbers, texts

_MIB = 2**20


class AttentionLimit(Observed):
    title = "Where attention runs out of memory"
    section = "attention"
    columns = (
        *numbers(
            "seq_len", "free_before_mib", "predicted_requested_mib", "inputs_mib", "scores_mib"
        ),
        *numbers("scaled_mib", "softmax_mib", "output_mib", "requested_mib", "free_mib"),
        *texts("outcome"),
    )
    results = ("seq_len", "requested_mib")
    axes = (
        Axis("batch", int),
        Axis("d_head", int),
        dtype_axis(("float32", "bfloat16")),
    )
    phases = ("forward",)
    implementations = (Implementation("eager"),)
    grids = {
        preset: [grid(batch=8, d_head=64, dtype=["float32", "bfloat16"], implementation="eager")]
        for preset in ("cpu", "gpu")
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.attention.limit import first_too_long, free_bytes, run_out, tensors

        batch, d_head, dtype = (case.axes[axis.name] for axis in self.axes)
        free = free_bytes(device)
        seq_len = first_too_long(batch, d_head, dtype, free)
        sizes = tensors(batch, seq_len, d_head, dtype)
        row = {
            "seq_len": seq_len,
            "free_before_mib": free / _MIB,
            "predicted_requested_mib": sizes["scores"] / _MIB,
            **{f"{name}_mib": size / _MIB for name, size in sizes.items()},
        }
        if device != "cuda":
            why = "not run: it would take the memory of the whole machine"
            return [{**row, "outcome": why}]
        return [{**row, **run_out(batch, seq_len, d_head, dtype, device)}]
