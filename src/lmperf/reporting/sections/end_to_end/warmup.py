"""E2: what the first steps of a process cost, and what warm-up does to mean and spread."""

from __future__ import annotations

import pandas as pd

from lmperf.names import phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having, in_reading_order
from lmperf.reporting.findings import Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import Spread, listed, significant, spread
from lmperf.reporting.sections.end_to_end.ways import in_words
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.tables import Lines, Owed, Table

STEM = "warmup"
CELL = ["size", "context_length", "batch", "dtype"]
WARM_UPS = (0, 1, 2, 5)
TIMED = 10
PARTS = ("forward", "backward", "optimizer")
RESERVED = (1, 2, 3)


def tables(evidence: MachineEvidence) -> list[Lines]:
    """E2: mean and spread by number of warm-up steps; every step; the first step by part."""
    frame = evidence.frame(STEM)
    if frame is None or not gates.shown(frame).any():
        return []
    frame = in_reading_order(frame[gates.shown(frame)], first=CELL)
    made = {
        f"The {TIMED} train steps after {listed(WARM_UPS)} warm-up steps, mean ± std": _warm_ups,
        "Every step of a new process (ms)": _steps,
        "The first step by part / the median later one": _first,
    }
    return each(*(_table(caption, frame, columns(frame)) for caption, columns in made.items()))


def _table(caption: str, frame: pd.DataFrame, columns: dict[str, pd.Series]) -> Lines | None:
    beside = [Beside(header, cells) for header, cells in columns.items()]
    return in_words(side_by_side(caption, having(frame, step=1), CELL, beside))


def _by_step(frame: pd.DataFrame, column: str = "step_ms") -> pd.DataFrame:
    """A column of the rows with a column a step, a line a process: the row of its first step."""
    first = having(frame, step=1)
    wide = frame.pivot_table(index=CELL, columns="step", values=column)
    return wide.reindex(pd.MultiIndex.from_frame(first[CELL])).set_axis(first.index)


def _part(frame: pd.DataFrame, part: str) -> tuple[pd.Series, pd.Series]:
    """Ms of a part in the first step of each process, and their median in its later ones."""
    steps = _by_step(frame, f"{part}_ms")
    return steps[1], steps.drop(columns=1).median(axis=1)


def after(steps: pd.DataFrame, warm_up: int) -> tuple[pd.Series, pd.Series]:
    """Mean and standard deviation, in ms, of the TIMED steps after so many steps of warm-up."""
    timed = steps[[n for n in steps.columns if warm_up < n <= warm_up + TIMED]]
    return timed.mean(axis=1), timed.std(axis=1, ddof=1)


def _warm_ups(frame: pd.DataFrame) -> dict[str, pd.Series]:
    columns = {}
    for warm_up in WARM_UPS:
        mean, std = after(_by_step(frame), warm_up)
        cells = [spread(m, s) for m, s in zip(mean, std, strict=True)]
        columns[f"after {warm_up} (ms)"] = pd.Series(cells, mean.index)
        columns[f"std / mean after {warm_up}"] = (std / mean).map(significant)
    return columns


def _steps(frame: pd.DataFrame) -> dict[str, pd.Series]:
    return {f"step {n:.0f}": times.map(significant) for n, times in _by_step(frame).items()}


def _first(frame: pd.DataFrame) -> dict[str, pd.Series]:
    columns = {}
    for part in PARTS:
        first, later = (times.map(significant) for times in _part(frame, part))
        columns[f"{phase_words(part)} (ms)"] = first + " / " + later
    for step, sizes in _by_step(frame, "reserved_mib").items():
        if step in RESERVED:
            columns[f"reserved in step {step:.0f} (MiB)"] = sizes.map(significant)
    return columns


def _cold(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, STEM)
    steps = _by_step(frame)
    if not {1, 2} <= set(steps.columns):
        raise NotMeasured
    ratios = measured((steps[1] / steps[2]).dropna())
    excess = {
        part: (first - later).sum() for part in PARTS for first, later in [_part(frame, part)]
    }
    part = max(excess, key=excess.get)
    reserving = frame[(frame["step"] > 1) & (frame["reserved_mib"] > 0)]
    return {
        "ratio": Spread.of(ratios),
        "part": phase_words(part),
        "share": excess[part] / sum(excess.values()),
        "reserves": len(reserving),
        "until": reserving["step"].max(),
        "most": reserving["reserved_mib"].max(),
    }


def _cold_answer(values: dict) -> str:
    if values["ratio"].low <= 1:
        return "not_always"
    return "reserves" if values["reserves"] else "longer"


_LONGER = (
    "The first train step of a process takes {{ ratio | range }} times as long as the second; of"
    " the excess over later ones its {{ part }} has {{ share | percent }}."
)
FINDINGS = (
    Finding(
        name="first_step",
        question="What does the first step of a process cost, and what is left of it after one?",
        values=_cold,
        answer=_cold_answer,
        answers={
            "longer": _LONGER,
            "reserves": _LONGER + " What is left after one warm-up step, which a published write-up"
            " (003) puts down to caching, coincides with memory that is still reserved: up to step"
            " {{ until }}, at most {{ most | sig }} MiB a step.",
            "not_always": "The first train step of a process takes {{ ratio | range }} times as"
            " long as the second: not everywhere is it the longer one.",
        },
    ),
)
TABLE = Table("E2", "Warm-up: the first steps of a process", tables, Owed(stem=STEM, cell=CELL))
