"""The time line of a fully sharded step: whether the weights of a block are gathered in time.

Steps of `distributed_leaderboard` run under the profiler. Each row is an interval in which rank 0
computes or communicates, within the time of two blocks of the forward or of the backward pass, and
has the overlap ledger of the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmperf.benchmark import Case, Implementation, Rank, RankedObserved, numbers, texts
from lmperf.benchmarks.distributed_leaderboard import FSDP2_GRID, DistributedLeaderboard
from lmperf.distributed.ledger import Collective, Entry, entry, length, summary
from lmperf.measuring.device_time import Interval, union

WARM_UPS, STEPS = 2, 3
COMPUTATION = "computation"
# A shorter pause between kernels is not drawn, in parts of the time of two blocks.
_PAUSE = 0.002
_BLOCKS = 2
_QUANTITIES = tuple(name.removesuffix("_ms") for name in Entry.__dataclass_fields__)


class DistributedTimeline(RankedObserved):
    title = "Time line of a fully sharded step"
    section = "distributed"
    index = ("position",)
    columns = (
        *texts("part", "kind"),
        *numbers("position", "start_ms", "end_ms", "steps"),
        *numbers(*(f"{name}{end}_ms" for name in _QUANTITIES for end in ("", "_low", "_high"))),
        *numbers("hidden_share", "hidden_share_low", "hidden_share_high"),
    )
    results = ("step_ms",)
    axes = DistributedLeaderboard.axes
    phases = ("train_step",)
    limit_s = 300.0
    implementations: tuple[Implementation, ...] = tuple(
        one for one in DistributedLeaderboard.implementations if one.name == "fsdp2"
    )
    grids = {"gpu": [FSDP2_GRID]}

    def observe_rank(self, case: Case, phase: str, rank: Rank, seed: int) -> list[dict[str, Any]]:
        from lmperf.instruments.overlap import observed
        from lmperf.precision import precision

        _, step, _ = DistributedLeaderboard.built(self, case, rank, seed)
        with precision(case.axes["dtype"]):
            for _ in range(WARM_UPS):
                step()
            return rows_of(observed(step, rank, STEPS))


def rows_of(seen: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of a case: the intervals of rank 0 in the last step, and the ledger of all.

    seen: `lmperf.instruments.overlap.Observed` of each step.
    """
    ledger = {"steps": len(seen), **summary([entry(step.ranks) for step in seen])}
    last = seen[-1].ranks[0]
    gathers = [one.start for one in last.collectives if one.kind == "all_gather"]
    rows = []
    for part, first in (("forward", len(gathers) // 4), ("backward", len(gathers) * 3 // 4)):
        ends = [*gathers, last.span[1]][first + _BLOCKS :]
        span = gathers[first], ends[0] if ends else last.span[1]
        for kind, (start, end) in intervals(last.computing, last.collectives, span):
            times = {"start_ms": start - span[0], "end_ms": end - span[0]}
            rows.append({"position": len(rows), "part": part, "kind": kind, **times, **ledger})
    return rows


def intervals(
    computing: Sequence[Interval], collectives: Sequence[Collective], span: Interval
) -> list[tuple[str, Interval]]:
    """(kind, interval) of what lies in a span: computation, then each kind of collective."""
    pause = _PAUSE * length([span])
    kinds: dict[str, list[Interval]] = {COMPUTATION: []}
    for start, end in union(computing):
        drawn = kinds[COMPUTATION]
        if drawn and start - drawn[-1][1] < pause:
            drawn[-1] = drawn[-1][0], end
        else:
            drawn.append((start, end))
    for one in collectives:
        kinds.setdefault(one.kind, []).append((one.start, one.end))
    return [
        (kind, (max(start, span[0]), min(end, span[1])))
        for kind, of in kinds.items()
        for start, end in of
        if end > span[0] and start < span[1]
    ]
