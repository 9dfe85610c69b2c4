"""Replace measured rows by failed ones, as the pipeline writes them.

A failed case has one row per phase. The row has the axes of the case, the status, for most statuses
a reason, and for OOM the bytes requested and free. All other measured columns are empty, including
the columns that distinguish several rows of a phase.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting.evidence import MachineEvidence, having, typed_rows

REASONS = {
    "oom": None,
    "crash": "RuntimeError: an illegal memory access was encountered (model.py:12)",
    "timeout": "took more than 120 s",
    "nan": "the result is not finite",
    "failed_check": "dq differs from the float64 reference",
    "unsupported": "has no kernel for this width",
}
ALL, ONE_IMPLEMENTATION, ONE_PHASE, ONE_CELL, SOME, LACKING = (
    *("all", "one implementation", "one phase", "one cell", "some", "lacking"),
)
SCOPES = (ALL, ONE_IMPLEMENTATION, ONE_PHASE, ONE_CELL, SOME, LACKING)
PROVENANCE = ("seed", "environment", "commit", "measured_at", "key")


@dataclass(frozen=True)
class Fault:
    """A failure to insert into the rows of a benchmark.

    Attributes:
        stem: the benchmark.
        scope: which cases and phases fail: one of SCOPES.
        statuses: the statuses (such as "oom") to choose from at random.
        seed: of the random choices.
    """

    stem: str
    scope: str
    statuses: tuple[str, ...]
    seed: int


def faulty(evidence: MachineEvidence, faults: Sequence[Fault]) -> MachineEvidence:
    """The evidence with the faults inserted, and with the column types of rows read from CSV."""
    frames = dict(evidence.frames)
    for fault in faults:
        frame = frames.pop(fault.stem, None)
        if frame is not None and fault.scope != LACKING:
            frames[fault.stem] = _with(frame, fault)
    return replace(evidence, frames={stem: as_read(f, stem) for stem, f in frames.items()})


def as_read(frame: pd.DataFrame, stem: str) -> pd.DataFrame:
    """The frame after writing it as CSV and reading it again, which sets its column types."""
    return typed_rows(
        list(csv.DictReader(io.StringIO(frame.to_csv(index=False)))), load(stem).kinds, stem
    )


def _with(frame: pd.DataFrame, fault: Fault) -> pd.DataFrame:
    axes = [axis.name for axis in load(fault.stem).axes if axis.name in frame]
    case = [*axes, "implementation", "phase"]
    cases = frame[case].drop_duplicates()
    draw = random.Random(fault.seed)
    chosen = _chosen(cases, fault.scope, draw)
    hit = frame.merge(chosen, on=case, how="left", indicator=True)["_merge"] == "both"
    kept = [name for name in (*case, *PROVENANCE) if name in frame]
    first = frame[hit.to_numpy()].drop_duplicates(case)[kept]
    rows = [{**row, **_failure(draw, fault.statuses)} for row in first.to_dict("records")]
    failed = pd.DataFrame(rows, columns=frame.columns, dtype=object)
    left = frame[~hit.to_numpy()].astype(object)
    return pd.concat([left, failed], ignore_index=True)


def _chosen(cases: pd.DataFrame, scope: str, draw: random.Random) -> pd.DataFrame:
    match scope:
        case "one implementation" | "one phase":
            column = scope.removeprefix("one ")
            return having(cases, **{column: draw.choice(sorted(cases[column].unique()))})
        case "one cell":
            axes = list(cases.columns.drop(["implementation", "phase"]))
            cell = cases.iloc[[draw.randrange(len(cases))]][axes]
            return cases.merge(cell, on=axes)
        case "some":
            share = draw.random()
            return cases.loc[[draw.random() < share for _ in cases.index]]
    return cases


def _failure(draw: random.Random, statuses: Sequence[str]) -> dict:
    status = draw.choice(statuses)
    row = {"status": status, "reason": REASONS[status]}
    if status == "oom" and draw.random() < 0.7:
        row |= {"requested_bytes": 2**32, "free_bytes": 2**30}
    if status == "failed_check" and draw.random() < 0.5:
        row |= {"max_error": 0.5, "error_bound": 1e-3}
    return row
