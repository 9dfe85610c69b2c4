"""Chooses the cases that a second process times as well, for A/A tests between two processes.

Two processes with the same code differ by more than two runs in one process: in the addresses of
their tensors, in what autotuning chose, in the state of the allocator. Peers and versions of the
code are timed in processes of their own, so the noise floor must contain this difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmperf.benchmark import Case

# Name of the worker of a twin; no implementation has a name with a space.
TWIN = "second process"
# Groups of a run of one benchmark that have twins. The noise floor is a quantile over the groups of
# a benchmark; twenty give its 0.95 quantile, and preparing a twin costs as much as its case.
MOST_GROUPS = 20
# The same for benchmarks of several ranks: a twin starts a rank group of its own.
MOST_RANKED_GROUPS = 3
# Memory that a twin needs: twice the peak of the case, since the correctness check holds reference
# results beside it, and a GiB for the process with its context and the buffer that flushes caches.
_PEAKS, _PROCESS_BYTES = 2.0, 2**30


@dataclass(frozen=True)
class Assignment:
    """A case (an implementation in a cell) and the name of the worker that is to run it."""

    worker: str
    case: Case


def twins_of(assignments: Sequence[Assignment]) -> dict[Assignment, Assignment]:
    """Return the first case of each dtype -> the same case in a second worker."""
    first: dict[Any, Assignment] = {}
    for one in assignments:
        first.setdefault(one.case.axes.get("dtype"), one)
    return {one: Assignment(f"{one.worker} {TWIN}".strip(), one.case) for one in first.values()}


def groups_with_twins(groups: int, most: int = MOST_GROUPS) -> set[int]:
    """Return the numbers of the groups of a run that have twins, evenly spaced, from 0."""
    chosen = min(groups, most)
    return {number * groups // chosen for number in range(chosen)}


def fits(prepared: Sequence[Mapping[str, Any]], free_bytes: float | None) -> bool:
    """Return whether a twin of a case fits into the free memory; True if that is unknown.

    prepared: the columns of the case's phases that are known before timing.
    """
    if free_bytes is None:
        return True
    sizes = (row.get(name) or 0.0 for row in prepared for name in ("resident_mib", "peak_mib"))
    return _PEAKS * max(sizes, default=0.0) * 2**20 + _PROCESS_BYTES <= free_bytes


def take_noise(row: dict[str, Any], twin: Mapping[str, Any]) -> None:
    """Store the times of `twin` in the column `again_ms` of `row`, if both rows were timed."""
    if "rounds_ms" in row and "rounds_ms" in twin:
        row["again_ms"] = twin["rounds_ms"]
