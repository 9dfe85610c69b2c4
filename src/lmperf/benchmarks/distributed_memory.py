"""The benchmark of the memory of each rank, by strategy and component.

The report shows it beside the closed form of `lmperf.distributed.rank_footprint`.
"""

from __future__ import annotations

from typing import Any

from lmperf.benchmark import Case, Implementation, Rank, RankedObserved, numbers, texts
from lmperf.benchmarks.distributed import BATCH, FEW, Distributed, cells, with_models
from lmperf.distributed.rank_footprint import COMPONENTS

_BF16 = "autocast_bfloat16"
_STRATEGIES = [
    *("one_rank", "overlapped", "flat", "bucket_100", "ddp"),
    *("sharded_optimizer", "zero_redundancy", "fully_sharded", "fsdp2"),
    *("fully_sharded_checkpointed", "fsdp2_checkpointed"),
]
_MIB = 2**20


class DistributedMemory(RankedObserved):
    title = "Memory of each rank"
    section = "distributed"
    index = ("moment",)
    columns = (
        *texts("moment", "instrument", "model"),
        *numbers(*(f"{part}_mib" for part in (*COMPONENTS, "total"))),
    )
    axes = Distributed.axes
    takes = Distributed.takes
    not_applicable = Distributed.not_applicable
    phases = ("train_step",)
    limit_s = 180.0
    implementations = tuple(one for one in Distributed.implementations if one.name in _STRATEGIES)
    grids = {
        "cpu": [cells(["tiny"], 32, [2], "float32", FEW)],
        "gpu": [
            cells(["3.4B"], 512, [2, 4], _BF16, _STRATEGIES),
            cells(["3.4B"], 512, [8], _BF16, _STRATEGIES, batch=2 * BATCH),
        ],
        "full": [cells(["0.97B"], 512, [2], "float32", _STRATEGIES)],
    }

    @property
    def known(self) -> dict[str, Implementation]:
        return with_models(super().known)

    def observe_rank(self, case: Case, phase: str, rank: Rank, seed: int) -> list[dict[str, Any]]:
        from lmperf.distributed.distributed_problem import DistributedProblem
        from lmperf.distributed.rank_memory import memory_of
        from lmperf.own.model import trained_by
        from lmperf.precision import precision

        implementation = self.require(case, rank.device)
        size, context, batch, _, dtype = (case.axes[axis.name] for axis in self.axes)
        name, build_model = trained_by(implementation)
        problem = DistributedProblem(size, context, batch, dtype, rank, seed, build_model)
        build, _ = Distributed.build_of(self, case.implementation)
        with precision(dtype):
            moments, instrument = memory_of(problem, build)
        return [
            {
                "moment": moment,
                "instrument": instrument,
                "model": name or None,
                **{f"{part}_mib": held / _MIB for part, held in found.items()},
            }
            for moment, found in moments.items()
        ]
