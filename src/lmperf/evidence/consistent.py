"""Find times of a benchmark that contradict one another, though each is possible by itself.

Time grows with work, so these rows of one implementation contradict each other:

- a row at twice the length (`Axis.length`) or more that is faster, all else equal;
- a pass whose time does not agree with its parts: forward and backward together against forward
  plus backward, a train step against forward and backward together;
- a row that is faster than a copy of the same bytes in its cell, if no cache holds them. Of bytes
  that fit, PyTorch's copy of 28 MB took 1.18 times as long as a kernel on an H100, run after run.

The differences must exceed the noise: the middle 60 % of the calls must not overlap, and rows of
different groups may differ by the drift of the machine that needs no mark (`state.DRIFT`).

A step is host-bound if the host needs more than 90 % of its time to queue it, a kernel if its row
has the mark `host_bound`. Its time is the host's, which does not grow with the work of the device.
So a host-bound row that is too slow contradicts nothing. Nor does a row with a mark that says that
its time may not hold.

The groups of such rows are measured again once (`RETAKEN`). If the rows still disagree, both stay,
and the report shows the disagreement.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from lmperf.benchmark import Benchmark, Timed
from lmperf.devices import CACHE_BYTES
from lmperf.evidence.cells import numbers_in
from lmperf.measuring.state import DRIFT, HOST_BOUND, SLOW_HOST
from lmperf.names import UNSETTLED

KIND = "contradicts another cell"
# Column of the rows of a group that was measured again because a row contradicted another cell.
RETAKEN = "retaken"
COPY = "copy"
# Whole -> (its parts, least and largest ratio of its time to theirs). Parts that are timed alone
# start with a cold cache and end with a wait, so they may take more than the whole. The optimizer
# of a train step takes most time if there are few tokens; 1.6 is the largest ratio seen.
_PARTS = {
    "forward_backward": (("forward", "backward"), 0.75, 1.25),
    "train_step": (("forward_backward",), 1.0, 4.0),
}
# Share of a copy's rate that a row may reach: a kernel may write a little less than it reads.
SHARE_OF_COPY = 1.05
# Range of a step's times, as a share of the shortest, up to which it is steady. On H200s the range
# was at most 1.5 % at the power limit, and 11 to 35 % where the step waited for a slow host.
STEADY = 0.05
# Share of a step's time that the host needs to queue it, above which a slower host decides: hosts
# that other virtual machines use become twice as slow.
_IN_REACH = 0.5

Row = Mapping[str, str]


@dataclass(frozen=True)
class Contradiction:
    """Rows that take longer than others allow.

    Attributes:
        slow: the rows that are too slow, if the others are right.
        fast: the rows that are too fast, if the others are right.
        words: the contradiction in words, which follow the name of `slow`.
    """

    slow: tuple[Row, ...]
    fast: tuple[Row, ...]
    words: str

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.slow + self.fast

    @property
    def is_settled(self) -> bool:
        """Whether all rows were measured again because of a contradiction."""
        return all(row.get(RETAKEN) == "True" for row in self.rows)


def contradictions(benchmark: Benchmark, rows: Iterable[Row], kind: str) -> list[Contradiction]:
    """Return the contradictions between the rows of a benchmark.

    Args:
        rows: rows of one environment; only those with the status ok and without a mark of
            `UNSETTLED` are compared.
        kind: kind of device: cuda, mps or cpu.
    """
    if not isinstance(benchmark, Timed):
        return []
    settled = [row for row in rows if row["status"] == "ok" and not is_unsettled(row)]
    found = chain(
        _of_lengths(benchmark, settled, 1 - DRIFT[kind]),
        _of_phases(benchmark, settled, 1 - DRIFT[kind]),
        _of_copies(benchmark, settled),
    )
    is_step = benchmark.clock == "step"

    def waits_for_host(row: Row) -> bool:
        return "host_bound" in _marks(row) or (is_step and is_host_bound(row))

    return [one for one in found if not any(map(waits_for_host, one.slow))]


def is_host_bound(row: Row) -> bool:
    """Whether the host needed more than 90 % of a step's time to queue it."""
    host_ms = row.get("host_ms")
    return bool(host_ms) and float(host_ms) > HOST_BOUND * float(row["median_ms"])


def is_unsettled(row: Row) -> bool:
    """Whether a row was timed while the machine was at work: its time may not hold."""
    return not UNSETTLED.isdisjoint(_marks(row)) or _waits_for_slow_host(row)


def with_host_mark(row: Row) -> Row:
    """The row, with the mark `host` if its time varies beside a slow host that may be the cause.

    A measurement marks a row if its single calls are host-bound. Where the device decides, a time
    hardly varies: so a step that varies waited for the host at times, although it had queued the
    step in time when `host_ms` was measured.
    """
    if "host" in _marks(row) or not _waits_for_slow_host(row):
        return row
    return {**row, "marks": ";".join(filter(None, [row.get("marks"), "host"]))}


def _waits_for_slow_host(row: Row) -> bool:
    """Whether the time of a step on a GPU varies, and a slow host may be the cause.

    The time is that of steps back to back, if there is one, else that of single calls.
    """
    if row.get("eager_ms"):  # a kernel
        return False
    of_step = ("sustained_ms", "sustained_rounds_ms")
    if not all(map(row.get, of_step)):
        of_step = ("median_ms", "p20_ms", "p80_ms")
    needed = ("launch_us", "host_reference", "host_ms", *of_step)
    if not all(map(row.get, needed)):  # not timed, or not on a GPU
        return False
    step_ms, *times = (number for name in of_step for number in numbers_in(row[name]))
    is_slow = float(row["host_reference"]) > 1 + SLOW_HOST["cuda"]
    in_reach = float(row["host_ms"]) > _IN_REACH * step_ms
    return is_slow and in_reach and max(times) > (1 + STEADY) * min(times)


def _marks(row: Row) -> list[str]:
    return (row.get("marks") or "").split(";")


def _of_lengths(benchmark: Timed, rows: Sequence[Row], drift: float) -> Iterator[Contradiction]:
    for axis in (axis.name for axis in benchmark.axes if axis.length):
        for alike in _alike(rows, [name for name in benchmark.identity if name != axis]):
            ordered = sorted((row for row in alike if row[axis]), key=lambda row: int(row[axis]))
            lengths = [int(row[axis]) for row in ordered]
            for length, longer in zip(lengths, ordered, strict=True):
                end = bisect_right(lengths, length // 2)
                halves = tuple(ordered[max(end - 1, 0) : end])
                if halves and _is_faster([longer], halves, drift):
                    yield Contradiction(
                        halves,
                        (longer,),
                        f"takes {_ms(halves)}, {axis}={longer[axis]} only {_ms([longer])}",
                    )


def _of_phases(benchmark: Timed, rows: Sequence[Row], drift: float) -> Iterator[Contradiction]:
    for alike in _alike(rows, [name for name in benchmark.identity if name != "phase"]):
        by_phase = {row["phase"]: row for row in alike}
        for phase, (names, least, most) in _PARTS.items():
            parts = tuple(by_phase[name] for name in names if name in by_phase)
            if phase not in by_phase or len(parts) < len(names):
                continue
            whole, said = (by_phase[phase],), " + ".join(names)
            if _is_faster(whole, parts, drift * least):
                words = f"takes {_ms(parts)} as {said}, {phase} only {_ms(whole)}"
                yield Contradiction(parts, whole, words)
            if _is_faster(parts, whole, drift / most):
                yield Contradiction(whole, parts, f"takes {_ms(whole)}, {said} only {_ms(parts)}")


def _of_copies(benchmark: Timed, rows: Sequence[Row]) -> Iterator[Contradiction]:
    moved = [row for row in rows if row.get("bytes") and float(row["bytes"]) > CACHE_BYTES]
    for alike in _alike(moved, [name for name in benchmark.identity if name != "implementation"]):
        copies = tuple(row for row in alike if row["implementation"] == COPY)
        for row in alike if copies else ():
            if row not in copies and _is_faster([row], copies, 1 / SHARE_OF_COPY):
                name = row["implementation"]
                yield Contradiction(
                    copies, (row,), f"takes {_ms(copies)}, {name} only {_ms([row])}"
                )


def _is_faster(some: Sequence[Row], others: Sequence[Row], ratio: float) -> bool:
    """Whether some rows together take less than this ratio of the time of others, beyond noise."""
    apart = _sum(some, "p80_ms") < _sum(others, "p20_ms")
    return _sum(some, "median_ms") < _sum(others, "median_ms") * ratio and apart


def _sum(rows: Sequence[Row], name: str) -> float:
    return sum(float(row[name]) for row in rows)


def _ms(rows: Sequence[Row]) -> str:
    return f"{_sum(rows, 'median_ms'):.4g} ms"


def _alike(rows: Sequence[Row], names: Sequence[str]) -> Iterable[list[Row]]:
    """Return the rows, grouped by equal texts in these columns."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(map(row.get, names)), []).append(row)
    return found.values()
