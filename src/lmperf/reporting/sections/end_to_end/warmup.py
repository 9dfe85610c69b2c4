"""Tables E2 and findings on warm-up: times of the first train steps of a new process."""

from __future__ import annotations

import pandas as pd

from lmperf.names import phase_words
from lmperf.reporting import gates
from lmperf.reporting.comparable import devices
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.host_bound import HOST_BOUND, queued
from lmperf.reporting.numbers import Count, Spread, finite, listed, spread
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.side_by_side import Beside, each, memory, share, side_by_side, text, time
from lmperf.reporting.tables import Owed, TableGroup, beside, number_cells, status_cells
from lmperf.results import LOWER, TIME, Cell, Table

STEM = "warmup"
CELL = ["size", "context_length", "batch", "dtype"]
WARM_UPS = (0, 1, 2, 5)
TIMED = 10
# Two times of one train step, from two processes, count as equal within this fraction.
NEAR = 0.10
# Share of a step within which the host must have queued it in E1, so that a host of half the speed
# does not make the step of E2 host-bound.
EARLY = HOST_BOUND / 2
# Arguments of `Beside` for a column of times whose header does not name the unit.
MS = ("ms", "significant", LOWER, TIME)
PARTS = ("forward", "backward", "optimizer")
# A part of the first step accounts for most of its excess from this share on.
MOST = 0.5
WHOLE, RESERVED = "step_ms", "reserved_mib"


def tables(evidence: MachineEvidence) -> list[Table]:
    """Tables E2, each with a line for each process.

    Mean and standard deviation after 0, 1, 2 and 5 warm-up steps; the time of every step; the parts
    of the first step beside later ones; the status of processes that failed.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    several = frame["implementation"].nunique() > 1
    cell = [*CELL, "implementation"] if several else CELL
    failed, frame = frame[~gates.shown(frame)], frame[gates.shown(frame)]
    status = [text("status", status_cells(failed), "status")]
    status = each(side_by_side("Processes without a series", failed, cell, status))
    if not frame["step"].eq(1).any():
        return status
    made = {
        f"The {TIMED} train steps after {listed(WARM_UPS)} warm-up steps, mean ± std": _warm_ups,
        "Every step of a new process (ms)": _steps,
        "The first step by part / the median later one": _first,
    }
    first, series = having(frame, step=1), _series(frame)
    made = (side_by_side(caption, first, cell, of(series)) for caption, of in made.items())
    return each(*made, *status)


def _series(frame: pd.DataFrame) -> pd.DataFrame:
    """Times and reserved memory of all steps, a row for each process.

    Index: the row of the first step of the process. Columns: (quantity, number of the step).
    """
    what = [WHOLE, *(f"{part}_ms" for part in PARTS), RESERVED]
    process = [*CELL, "implementation"]
    rows = frame.drop_duplicates([*process, "step"], keep="last")
    wide = rows.pivot(index=process, columns="step", values=what)
    first = having(frame, step=1)
    return wide.reindex(pd.MultiIndex.from_frame(first[process])).set_axis(first.index)


def _warm_ups(series: pd.DataFrame) -> list[Beside]:
    columns, steps = [], series[WHOLE]
    for warm_up in WARM_UPS:
        timed = steps[[n for n in steps if warm_up < n <= warm_up + TIMED]]
        mean, std = timed.mean(axis=1), timed.std(axis=1, ddof=1)
        cells = [
            Cell(spread(m, s), finite(m), n=int(n), std=finite(s))
            for m, s, n in zip(mean, std, timed.notna().sum(axis=1), strict=True)
        ]
        means = pd.Series(cells, series.index, dtype=object)
        ratios = number_cells(std / mean)
        name = f"after_{warm_up}"
        columns.append(time(f"after {warm_up}", means, name))
        columns.append(
            share(f"std / mean after {warm_up}", ratios, f"{name}.relative_std", form="significant")
        )
    return columns


def _steps(series: pd.DataFrame) -> list[Beside]:
    steps = series[WHOLE]
    columns = [
        Beside(f"step {n:.0f}", number_cells(times), f"step_{n:.0f}", *MS)
        for n, times in steps.items()
    ]
    if {1, 2} <= set(steps):
        ratios = number_cells(steps[1] / steps[2])
        columns.append(share("step 1 / step 2", ratios, "step_1.over.step_2", form="significant"))
    return columns


def _first(series: pd.DataFrame) -> list[Beside]:
    columns = []
    for part in PARTS:
        steps = series[f"{part}_ms"]
        first, later = steps[1], steps.drop(columns=1).median(axis=1)
        cells = beside(number_cells(first), later)
        columns.append(time(phase_words(part), cells, part, second="median later"))
    reserved = series[RESERVED]
    until = max((n for n in reserved if reserved[n].any()), default=0)
    shown = reserved[[n for n in reserved if n <= until]]
    return columns + [
        memory(f"reserved in step {n:.0f}", number_cells(sizes), f"step_{n:.0f}.reserved")
        for n, sizes in shown.items()
    ]


def _cold(evidence: MachineEvidence) -> dict:
    """How much longer the first step is, in which part, and until when memory is reserved."""
    frame = rows_of(evidence, STEM, implementation="eager")
    series = _series(frame)
    steps = series[WHOLE]
    if not {1, 2} <= set(steps):
        raise NotMeasured
    part, share = _slowest_part(series)
    reserving = frame[(frame["step"] > 1) & (frame[RESERVED] > 0)]
    return {
        "ratio": Spread.of(measured((steps[1] / steps[2]).dropna())),
        "part": part,
        "share": share,
        "until": None if reserving.empty else reserving["step"].max(),
    }


def _slowest_part(series: pd.DataFrame) -> tuple[str | None, Spread | None]:
    """The part of the first step that has most of its excess in each process, and its share.

    Both are None if there is no such part. The excess is over the median of later steps.
    """
    times = {part: series[f"{part}_ms"] for part in PARTS}
    excess = pd.DataFrame(
        {part: steps[1] - steps.drop(columns=1).median(axis=1) for part, steps in times.items()}
    )
    shares = excess.div(excess.sum(axis=1), axis=0).dropna()
    most = [part for part in PARTS if len(shares) and shares[part].min() > MOST]
    return (most[0], Spread.of(shares[most[0]])) if most else (None, None)


def _cold_answer(values: dict) -> str:
    if values["ratio"].low <= 1:
        return "not_always"
    return "reserves" if values["until"] else "longer"


def _again(evidence: MachineEvidence) -> dict:
    """Compare warm eager train steps of table E2 with those of table E1, from another process.

    Both must be from one device. Steps that may be host-bound are left out: times of the host are
    not compared if not taken in turn. E2 does not record when the host has queued a step, so the
    host must have been early enough in E1 (``EARLY``).
    """
    warm = rows_of(evidence, STEM, implementation=ways.EAGER)
    steps = _series(warm)[WHOLE]
    alone = steps[[n for n in steps if n > max(WARM_UPS)]].median(axis=1)
    in_turn = rows_of(evidence, ways.STEM, implementation=ways.EAGER, phase=ways.STEP)
    in_turn = in_turn[~(queued(in_turn) > EARLY)]
    both = warm.loc[alone.index, CELL].assign(alone=alone, device=devices(evidence, STEM))
    in_turn = in_turn[[*CELL, "median_ms"]].assign(device=devices(evidence, ways.STEM))
    both = measured(both.dropna().merge(in_turn.dropna(), on=[*CELL, "device"]))
    ratios = both["alone"] / both["median_ms"]
    off = both[(ratios > 1 + NEAR) | (ratios < 1 / (1 + NEAR))]
    return {"ratio": Spread.of(ratios), "near": NEAR, "off": Count(len(off), len(both))}


_LONGER = (
    "The first train step of a process takes {{ ratio | range }} times as long as the second (E2)"
)
_PART = (
    "{% if part %} The {{ part }} {{ 'step' if part == 'optimizer' else 'pass' }} takes"
    " {{ share | range('percent') }} of the excess.{% endif %}"
)
_AGAIN = (
    "Warm steps that are not host-bound take {{ ratio | range('ratio') }} as long in E2 as in E1"
)
FINDINGS = (
    Finding(
        name="first_step",
        question="How much longer is the first step of a process than the second?",
        values=_cold,
        answer=_cold_answer,
        answers={
            "longer": f"{_LONGER}.{_PART}",
            "reserves": f"{_LONGER}.{_PART} Up to step {{{{ until }}}} the allocator still reserves"
            " memory, so leave out that many. A published write-up (003) gives caching as the"
            " probable cause.",
            "not_always": f"{_LONGER}: it is not always longer.",
        },
    ),
    Finding(
        name="warm_again",
        question="Does a warm step take as long in E2 as in E1?",
        values=_again,
        answer=lambda v: "near" if v["off"].none else "apart",
        answers={
            "near": f"{_AGAIN}.",
            "apart": f"{_AGAIN}: {{{{ off }}}} differ by more than {{{{ near | percent(0) }}}}.",
        },
        place=PAGE,
    ),
)
TABLE = TableGroup(
    "E2", "Warm-up: the first steps of a process", tables, Owed(stem=STEM, cell=CELL)
)
