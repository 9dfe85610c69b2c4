"""The overlap ledger: how much of the communication of a step computation hides, by strategy.

Steps run under the profiler, each one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case, Implementation, Rank, RankedObserved, numbers, texts
from lmperf.benchmarks.distributed import (
    BATCH,
    LARGE_BATCH,
    LIKE_RECOMMENDED,
    PEERS,
    RECOMMENDED,
    SCALED,
    SCALED_CONTEXT,
    Distributed,
    cells,
    is_alone,
    scaled,
    with_models,
)
from lmperf.distributed.ledger import Entry, entry, summary

_BF16 = "autocast_bfloat16"
_ALL = [one.name for one in Distributed.implementations if not is_alone(one.name)]
_RECOMMENDED, _PEERS = ([n for n in names if n in _ALL] for names in (RECOMMENDED, PEERS))
_EVERY = [name for name in _ALL if name not in (*RECOMMENDED, *LIKE_RECOMMENDED)]
_EAGER = [name for name in _EVERY if not name.endswith("_compiled")]
_FEW = ["one_by_one", "flat", "overlapped", "ddp", "fully_sharded", "fsdp2"]
_LARGE = ["overlapped_compiled", "ddp_compiled", "fully_sharded_compiled", "fsdp2_compiled"]
WARM_UPS, STEPS = 2, 9
# The strategies whose trace is kept.
TRACED = ("flat", "overlapped", "fully_sharded")
_QUANTITIES = tuple(name.removesuffix("_ms") for name in Entry.__dataclass_fields__)


class DistributedOverlap(RankedObserved):
    title = "Overlap of communication"
    section = "distributed"
    columns = (
        *texts("trace", "model"),
        *numbers("steps", "calls", "sent_bytes"),
        *numbers(*(f"{name}{end}_ms" for name in _QUANTITIES for end in ("", "_low", "_high"))),
        *numbers("hidden_share", "hidden_share_low", "hidden_share_high"),
    )
    axes = Distributed.axes
    not_applicable = Distributed.not_applicable
    takes = Distributed.takes
    phases = ("train_step",)
    limit_s = 180.0
    implementations = tuple(one for one in Distributed.implementations if one.name in _ALL)
    grids = {
        "cpu": [cells(["tiny"], 32, [2], "float32", _FEW)],
        "gpu": [
            cells(["3.4B"], 512, [2, 4], _BF16, _EVERY),
            cells(["3.4B"], 512, [8], _BF16, _EVERY, batch=2 * BATCH),
            cells(["3.4B"], 512, [2, 4], _BF16, _LARGE, batch=LARGE_BATCH),
            *(one for size in SCALED for one in scaled(size, _RECOMMENDED)),
            *scaled("3.4B", _PEERS),
        ],
        "full": [
            *scaled("0.13B", _PEERS),
            *scaled("0.97B", _PEERS),
            cells(["0.97B"], 512, [2], _BF16, _EAGER),
            cells(["0.97B"], 512, [2], "float32", _FEW),
        ],
    }
    # A strategy of a quick run, so that it fills table D3.
    head = {
        "gpu": [
            {
                **{"size": ["0.97B"], "context_length": [SCALED_CONTEXT], "ranks": [2]},
                **{"batch": [2 * SCALED["0.97B"]], "implementation": ["overlapped_graph"]},
            }
        ],
    }

    @property
    def known(self) -> dict[str, Implementation]:
        return with_models(super().known)

    def observe_rank(self, case: Case, phase: str, rank: Rank, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.distributed.distributed_problem import DistributedProblem
        from lmperf.instruments.overlap import observed
        from lmperf.instruments.profiling import trace_path
        from lmperf.own.model import trained_by
        from lmperf.precision import precision

        implementation = self.require(case, rank.device)
        if implementation.compiles:
            require_compiler(rank.device)
        size, context, batch, _, dtype = (case.axes[axis.name] for axis in self.axes)
        name, build_model = trained_by(implementation)
        problem = DistributedProblem(size, context, batch, dtype, rank, seed, build_model)
        build, _ = Distributed.build_of(self, case.implementation)
        with precision(dtype):
            training = build(problem.setup())
            for _ in range(WARM_UPS):
                problem.step(training)
            kept = trace_path(self.traces, case) if case.implementation in TRACED else None
            path = kept if rank.number == 0 else None
            seen = observed(lambda: problem.step(training), rank, STEPS, path)
        return [{**row_of(seen, kept), "model": name or None}]


def row_of(seen: Sequence[Any], kept: Path | None) -> dict[str, Any]:
    """The row of a case, from what was observed of its steps.

    seen: `lmperf.instruments.overlap.Observed` of each step. kept: path of the trace, or None.
    """
    last = seen[-1]
    return {
        "steps": len(seen),
        "calls": last.calls,
        "sent_bytes": last.sent_bytes,
        "trace": kept.name if kept else None,
        **summary([entry(step.ranks) for step in seen]),
    }
