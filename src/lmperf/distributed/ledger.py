"""The overlap ledger: how much of a step's communication is hidden under computation.

A rank's communication is the union of the intervals of its collectives, its computation the union
of the intervals in which it computes. What lies in both is hidden, the rest of the communication is
exposed: the step is longer by it.

A collective begins when the last rank begins it. Before that the others wait for that rank: there
is nothing to transfer yet, and no overlap could hide it. This waiting is kept apart (`waited_ms`),
so an uneven division of work does not count as communication. It needs one clock for all ranks.

The rank with the most exposed communication decides a step; each step is one sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from lmperf.measuring.device_time import Interval, union
from lmperf.statistics import median_interval

# Intervals are in ms on the clock of all ranks.
ALL_GATHER = "all_gather"


@dataclass(frozen=True)
class Collective:
    """A collective on one rank: its kind (as `all_reduce`), its start and its end in ms."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True)
class RankStep:
    """What one rank did in one step.

    Attributes:
        span: start and end of the step.
        collectives: in the order in which they started.
        computing: intervals in which the rank computed.
    """

    span: Interval
    collectives: Sequence[Collective]
    computing: Sequence[Interval]


@dataclass(frozen=True)
class Entry:
    """The ledger of one step in ms; all but `step_ms` and `waited_ms` of the rank that decides.

    Attributes:
        step_ms: the longest step of a rank.
        compute_ms: computation.
        communication_ms: hidden and exposed communication.
        late_ms: exposed communication of all-gathers, whose weights come late.
        waited_ms: most time that a rank waited for another one to begin a collective, while it
            computed nothing.
    """

    step_ms: float
    compute_ms: float
    communication_ms: float
    hidden_ms: float
    exposed_ms: float
    late_ms: float
    waited_ms: float


def common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two unions of intervals."""
    overlaps, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if end > start:
            overlaps.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return overlaps


def length(intervals: Iterable[Interval]) -> float:
    """Return the total length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def pauses(busy: Sequence[Interval], span: Interval) -> list[Interval]:
    """Return the intervals of a span in which nothing of a union of intervals lies."""
    inside = common(busy, [span])
    starts = [span[0], *(end for _, end in inside)]
    ends = [*(start for start, _ in inside), span[1]]
    return [pause for pause in zip(starts, ends, strict=True) if pause[1] > pause[0]]


def unless_waiting(
    busy: Sequence[Interval], span: Interval, ends: Sequence[float], late: float
) -> list[Interval]:
    """Return the intervals of a span in which a host does not wait for communication.

    A host has no kernels: between operators it runs the program, which is work, or waits. A pause
    counts as waiting if a collective ends in it, or at most `late` after it, since the thread that
    waits may go on before the end of the collective is recorded.

    Args:
        busy: intervals of operators.
        ends: ends of collectives.
        late: ms.
    """
    waits = [
        (start, end)
        for start, end in pauses(busy, span)
        if any(start <= at <= end + late for at in ends)
    ]
    return pauses(waits, span)


def common_starts(ranks: Sequence[RankStep]) -> list[list[float]]:
    """Return for each rank the moments at which its collectives begin on the last rank.

    The n-th collective of a kind is the same one on every rank.

    Raises:
        ValueError: the ranks ran different collectives.
    """
    kinds = [Counter(collective.kind for collective in rank.collectives) for rank in ranks]
    if any(counts_of_rank != kinds[0] for counts_of_rank in kinds):
        counts = "; ".join(
            f"rank {n}: {dict(counts_of_rank)}" for n, counts_of_rank in enumerate(kinds)
        )
        raise ValueError(f"the ranks ran different collectives ({counts})")
    names = [_numbered(rank.collectives) for rank in ranks]
    last: dict[tuple[str, int], float] = {}
    for rank, named in zip(ranks, names, strict=True):
        for collective, name in zip(rank.collectives, named, strict=True):
            last[name] = max(collective.start, last.get(name, collective.start))
    return [[last[name] for name in named] for named in names]


def _numbered(collectives: Sequence[Collective]) -> list[tuple[str, int]]:
    seen: Counter[str] = Counter()
    numbered = []
    for collective in collectives:
        numbered.append((collective.kind, seen[collective.kind]))
        seen[collective.kind] += 1
    return numbered


def entry(ranks: Sequence[RankStep]) -> Entry:
    """Return the ledger of a step."""
    entries = [
        _of_rank(*rank_entry) for rank_entry in zip(ranks, common_starts(ranks), strict=True)
    ]
    worst = max(entries, key=lambda rank_entry: rank_entry.exposed_ms)
    longest = max(rank_entry.step_ms for rank_entry in entries)
    waited = max(rank_entry.waited_ms for rank_entry in entries)
    return replace(worst, step_ms=longest, waited_ms=waited)


def _of_rank(rank: RankStep, begun: Sequence[float]) -> Entry:
    collectives = list(zip(rank.collectives, begun, strict=True))
    computing = union(rank.computing)
    transfer = union((begin, collective.end) for collective, begin in collectives)
    gathers = union(
        (begin, collective.end)
        for collective, begin in collectives
        if collective.kind == ALL_GATHER
    )
    idle = pauses(union([*computing, *transfer]), rank.span)
    hidden, whole = length(common(transfer, computing)), length(transfer)
    return Entry(
        step_ms=length([rank.span]),
        compute_ms=length(computing),
        communication_ms=whole,
        hidden_ms=hidden,
        exposed_ms=whole - hidden,
        late_ms=length(gathers) - length(common(gathers, computing)),
        waited_ms=length(
            common(union((collective.start, begin) for collective, begin in collectives), idle)
        ),
    )


def summary(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the median over steps of each quantity, and the ends of its confidence interval.

    For a quantity `exposed_ms` the ends are `exposed_low_ms` and `exposed_high_ms`. `hidden_share`
    is that of the steps that have any communication; without such steps it is left out.
    """
    columns = {}
    for name in asdict(entries[0]):
        stem, values = name.removesuffix("_ms"), [getattr(step, name) for step in entries]
        low, high = median_interval(values)
        columns |= {name: median(values), f"{stem}_low_ms": low, f"{stem}_high_ms": high}
    if shares := [
        step.hidden_ms / step.communication_ms for step in entries if step.communication_ms
    ]:
        low, high = median_interval(shares)
        columns |= {"hidden_share_low": low, "hidden_share_high": high}
        columns["hidden_share"] = median(shares)
    return columns
