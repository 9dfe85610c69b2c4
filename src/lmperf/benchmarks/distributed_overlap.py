"""The overlap ledger: how much of the communication of a step computation hides, by strategy.

Steps run under the profiler, each one sample. The rows of a case are its ledger and, of two
strategies, the timeline of the step whose exposed communication is the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case, Rank, RankedObserved, numbers, texts
from lmperf.benchmarks.distributed import BATCH, LARGE_BATCH, Distributed, cells, is_alone
from lmperf.distributed.ledger import (
    Entry,
    RankStep,
    common_starts,
    communication,
    entry,
    length,
    summary,
    thinned,
    union,
)

_BF16 = "autocast_bfloat16"
_ALL = [one.name for one in Distributed.implementations if not is_alone(one.name)]
_EAGER = [name for name in _ALL if not name.endswith("_compiled")]
_FEW = ["one_by_one", "flat", "overlapped", "ddp", "fully_sharded", "fsdp2"]
_LARGE = ["overlapped_compiled", "ddp_compiled", "fully_sharded_compiled", "fsdp2_compiled"]
# A strategy that gathers, so that a quick run fills table D3.
_HEAD = ["fully_sharded"]
WARM_UPS, STEPS = 2, 9
# The strategies whose timeline and trace are kept.
TIMELINES = ("flat", "overlapped")
# A gap shorter than this fraction of the step is not drawn.
_GAP = 0.002
_QUANTITIES = tuple(name.removesuffix("_ms") for name in Entry.__dataclass_fields__)
_SHARES = ("hidden_share", "gathers_hidden_share")


class DistributedOverlap(RankedObserved):
    title = "Overlap of communication"
    section = "distributed"
    index = ("table", "position")
    columns = (
        *texts("table", "lane", "trace"),
        *numbers("position", "steps", "calls", "sent_bytes", "starts_ms", "ends_ms"),
        *numbers(*(f"{name}{end}_ms" for name in _QUANTITIES for end in ("", "_low", "_high"))),
        *numbers(*(f"{name}{end}" for name in _SHARES for end in ("", "_low", "_high"))),
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
            cells(["3.4B"], 512, [2, 4], _BF16, _ALL),
            cells(["3.4B"], 512, [8], _BF16, _ALL, batch=2 * BATCH),
            cells(["3.4B"], 512, [2, 4], _BF16, _LARGE, batch=LARGE_BATCH),
            cells(["0.97B"], 512, [2], _BF16, _HEAD, batch=LARGE_BATCH),
        ],
        "full": [
            cells(["0.97B"], 512, [2], _BF16, _EAGER),
            cells(["0.97B"], 512, [2], "float32", _FEW),
        ],
    }
    head = {
        "gpu": [
            {
                "size": ["0.97B"],
                "batch": [LARGE_BATCH],
                "ranks": [2],
                "implementation": _HEAD,
            }
        ],
    }

    def observe_rank(self, case: Case, phase: str, rank: Rank, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.distributed.problem import DistributedProblem
        from lmperf.instruments.overlap import observed
        from lmperf.instruments.profiling import trace_path
        from lmperf.precision import precision

        if self.require(case, rank.device).compiles:
            require_compiler(rank.device)
        size, context, batch, _, dtype = (case.axes[axis.name] for axis in self.axes)
        problem = DistributedProblem(size, context, batch, dtype, rank, seed)
        build, _ = Distributed.build_of(self, case.implementation)
        with precision(dtype):
            training = build(problem.setup())
            for _ in range(WARM_UPS):
                problem.step(training)
            kept = trace_path(case) if case.implementation in TIMELINES else None
            path = kept if rank.number == 0 else None
            seen = observed(lambda: problem.step(training), rank, STEPS, path)
        return rows_of(seen, case.implementation, kept)


def rows_of(seen: Sequence[Any], implementation: str, kept: Path | None) -> list[dict[str, Any]]:
    """The rows of a case, from what was observed of its steps.

    seen: `lmperf.instruments.overlap.Observed` of each step. kept: path of the trace, or None.
    """
    found = [entry(step.ranks) for step in seen]
    last = seen[-1]
    row = {
        "table": "ledger",
        "position": 0,
        "steps": len(seen),
        "calls": last.calls,
        "sent_bytes": last.sent_bytes,
        "trace": kept.name if kept else None,
        **summary([one for one, _ in found]),
    }
    if implementation not in TIMELINES:
        return [row]
    order = sorted(range(len(seen)), key=lambda number: found[number][0].exposed_ms)
    middle = order[len(order) // 2]
    return [row, *timeline(seen[middle].ranks, found[middle][1])]


def timeline(ranks: Sequence[RankStep], worst: int) -> list[dict[str, Any]]:
    """A row for each interval of computation and of communication of one rank in a step."""
    rank = ranks[worst]
    lanes = {
        "computation": union(rank.computing),
        "communication": communication(rank, common_starts(ranks)[worst]),
    }
    least, begin = _GAP * length([rank.span]), rank.span[0]
    spans = [(lane, one) for lane, busy in lanes.items() for one in thinned(busy, least)]
    return [
        {
            "table": "timeline",
            "position": number,
            "lane": lane,
            "starts_ms": start - begin,
            "ends_ms": end - begin,
        }
        for number, (lane, (start, end)) in enumerate(spans)
    ]
