"""The benchmark of collectives between ranks, and of a copy from one rank to another.

A copy between two ranks gives the rate of their link, with which the collectives are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Rank, RankedTimed, Workload, grid, numbers

# A message must split evenly among eight ranks in elements of four bytes.
_SIZES = (1_024, 16_384, 131_072, *(10**power for power in range(6, 10)))
_FEW_SIZES = (1_024, 131_072, 1_000_000, 10_000_000)
_OPERATIONS = ("copy", "all_reduce", "all_gather", "reduce_scatter")

_cells = partial(grid, operation=_OPERATIONS, implementation="library")


class Collectives(RankedTimed):
    title = "Collectives between ranks"
    section = "distributed"
    axes = (
        Axis("operation", str, _OPERATIONS),
        dtype_axis(("float32", "bfloat16")),
        # As nccl-tests count it; see `lmperf.distributed.collectives`.
        Axis("message_bytes", int, most=2**40),
        Axis("ranks", int, least=2, most=256),
    )
    columns = numbers("error_wrong_elements")
    # Starting the processes of a group takes longer than timing all of its messages.
    together = ("operation", "message_bytes")
    implementations = (Implementation("library"),)
    grids = {
        "cpu": [_cells(dtype="float32", message_bytes=_FEW_SIZES, ranks=2)],
        "gpu": [_cells(dtype="float32", message_bytes=_SIZES, ranks=[2, 4, 8])],
        "full": [_cells(dtype="bfloat16", message_bytes=_SIZES, ranks=[2, 4, 8])],
    }
    head = {"gpu": [{"dtype": ["float32"], "ranks": [2]}]}
    repeated = {
        preset: [{"operation": ["all_reduce"], "message_bytes": [sizes[-1]], "dtype": ["float32"]}]
        for preset, sizes in {"cpu": _FEW_SIZES, "gpu": _SIZES}.items()
    }

    def not_applicable(self, axes: Mapping[str, Any], implementation: str) -> bool:
        """A copy is between two ranks."""
        return axes["operation"] == "copy" and axes["ranks"] != 2

    def prepare_rank(self, case: Case, rank: Rank, seed: int, shared: dict) -> Workload:
        from lmperf.distributed.collectives import LIBRARY, Message

        operation, size = case.axes["operation"], case.axes["message_bytes"]
        if size not in shared:
            shared[size] = Message(case.axes["dtype"], size, rank, seed)
        message: Message = shared[size]
        phase = message.phase(operation, LIBRARY[operation])
        return Workload(
            {"forward": phase},
            gate=lambda _: message.check(operation, phase.run(phase.before())),
            freshen=message.freshen,
            check=lambda _, result: message.check(operation, result),
            resident=[message.source, message.target],
        )
