"""Compare two machines cell by cell: ratios of times beside the ratio of the data sheets.

Two machines are never timed in turn, so a ratio is that of two medians over rounds, which are
shown, with a bootstrap interval over the rounds of each. What a row may gain follows from what
bounds it: memory-bound work from the bandwidth of the data sheets, compute-bound work from the rate
of matmuls in its numerics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load, stems
from lmperf.devices import DataSheet
from lmperf.dtypes import dtype_of
from lmperf.names import value_words
from lmperf.reporting import gates, machine, marks
from lmperf.reporting.bound import COMPUTE, HOST, MEMORY, NEITHER, bounds_of
from lmperf.reporting.ceilings import STEM as CEILINGS
from lmperf.reporting.ceilings import data_sheet
from lmperf.reporting.comparable import STEP, compared_apart
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.machine import FACTS
from lmperf.reporting.noise import floors_of, noise_floors
from lmperf.reporting.numbers import absent, interval, ratio
from lmperf.reporting.rounds import parse_rounds, resolution
from lmperf.reporting.sections.attention import bound as attention
from lmperf.reporting.side_by_side import share, side_by_side, speedup, text, time
from lmperf.reporting.speedup import speedup_cell
from lmperf.reporting.tables import (
    as_cell,
    from_frame,
    medians,
    number_cell,
    number_cells,
    text_cells,
)
from lmperf.results import EMPTY, HIGHER, Cell, Column, Table
from lmperf.statistics import FALSE_DISCOVERY, UNRESOLVED, Ratio, adjusted, unpaired, verdict

# The rounds are the independent units of a run, so a ratio is over them, and so are its times.
TIMES = (
    "Times: the median of the rounds' medians, whose quotient is the ratio. Other pages show the"
    " median of all calls."
)
LASTING = " Train steps: the median of sustained blocks, if both machines have them."
# Facts that change times beside the device itself.
SOFTWARE = ("torch", "triton", "cuda", "driver", "python")
_BY_BOUND = {
    **{"benchmark": "benchmark", "bound": "bound by", "cells": "cells"},
    "unresolved": "of these unresolved",
}
BOUNDS = {
    MEMORY: "*Memory*: bytes at copy speed take longer than FLOPs at the peak matmul.",
    COMPUTE: "*Compute*: FLOPs at the peak matmul take longer than bytes at copy speed.",
    NEITHER: "*Neither*: FLOPs and bytes explain less than half of the time.",
    HOST: "*Host*: the time contains the host, which takes longer than the device.",
}
DTYPES = ("float32", "tf32", "bfloat16")


def unequal_software(one: MachineEvidence, other: MachineEvidence) -> list[str]:
    """What software of the newest environments differs, one line each: ``torch: 2.11, 2.13``."""
    facts = machine.newest(one), machine.newest(other)
    pairs = {name: [str(of.get(name) or "none") for of in facts] for name in SOFTWARE}
    return [f"{FACTS[name]}: {', '.join(of)}" for name, of in pairs.items() if of[0] != of[1]]


def data_sheets(one: MachineEvidence, other: MachineEvidence) -> Table | None:
    """The rates of both data sheets and their ratios; None if a device has no known data sheet."""
    sheets = data_sheet(one), data_sheet(other)
    if None in sheets:
        return None
    lines = [
        {"rate": words, one.name: f"{of[0]:,}", other.name: f"{of[1]:,}", "ratio": of[0] / of[1]}
        for words, *of in [
            ("bandwidth (GB/s)", *(sheet.bandwidth_gbps for sheet in sheets)),
            *(_rates(dtype, *sheets) for dtype in DTYPES),
        ]
        if None not in of
    ]
    frame = pd.DataFrame(lines)
    frame["ratio"] = number_cells(frame["ratio"], ratio)
    right = [*frame.columns[1:]]
    return from_frame("Dense rates of the data sheets", frame, "", right)


def _rates(dtype: str, *sheets: DataSheet) -> tuple:
    found = (sheet.tflops.get(dtype) for sheet in sheets)
    return f"{value_words('dtype', dtype)} (TFLOP/s)", *found


def ratios_by_bound(one: MachineEvidence, other: MachineEvidence) -> Table | None:
    """The median ratio of the cells of each benchmark, by what bounds them; None without any.

    Stale and doubtful cells (`marks.doubtful`) are left out: no finding rests on them.
    """
    lines = [line for stem in _timed() for line in _lines_by_bound(one, other, stem)]
    if not lines:
        return None
    frame = pd.DataFrame(lines)
    found = [
        Cell(interval(*of), *of) for of in frame[["ratio", "low", "high"]].itertuples(index=False)
    ]
    columns = [
        *(
            Column(name, words, tuple(map(as_cell, frame[name])))
            for name, words in _BY_BOUND.items()
        ),
        Column(
            "one.over.other", f"{one.name} over {other.name}", tuple(found), "", "ratio", HIGHER
        ),
        Column("sheets", "data sheets", tuple(number_cells(frame["sheets"], ratio)), "", "ratio"),
    ]
    note = (
        "Median of the cells (lowest-highest). Left out: cells that are stale, disturbed by load,"
        f" drift or the host, capped in single calls, or contradict another cell."
        f"{_meanings(frame['bound'])}"
    )
    return Table("What one machine gains over the other", tuple(columns), note)


def _lines_by_bound(one: MachineEvidence, other: MachineEvidence, stem: str) -> Iterator[dict]:
    rows, others = _shared(one, other, stem)
    if rows.empty:
        return
    compared = compared_apart(rows, others)
    bounds = _bounds(one, stem, compared[0])
    ratios = _ratios(rows, others)
    values = {
        "bound": bounds,
        "ratio": [cell.value for cell in ratios],
        "unresolved": [cell.verdict == UNRESOLVED for cell in ratios],
        "sheets": [cell.value for cell in _expected(one, other, rows, bounds)],
    }
    holds = ~(_doubtful(rows, stem) | _doubtful(others, stem)) & bounds.notna()
    frame = pd.DataFrame(values, rows.index)[holds]
    for bound, cells in frame.groupby("bound", sort=True):
        found = cells["ratio"].agg(["median", "min", "max"])
        yield {
            **{"benchmark": load(stem).title, "bound": bound, "cells": len(cells)},
            "unresolved": int(cells["unresolved"].sum()),
            **dict(zip(("ratio", "low", "high"), found, strict=True)),
            "sheets": cells["sheets"].astype(float).median(),
        }


def _meanings(*bounds: Iterable[str | None]) -> str:
    """What the words for these bounds mean, each after a space."""
    used = {bound for of in bounds for bound in of}
    return "".join(f" {meaning}" for bound, meaning in BOUNDS.items() if bound in used)


def _doubtful(rows: pd.DataFrame, stem: str) -> pd.Series:
    return marks.doubtful(rows, stem) | rows.get("stale", pd.Series(False, rows.index)).eq(True)


def _bounds(evidence: MachineEvidence, stem: str, rows: pd.DataFrame) -> pd.Series:
    """What bounds each row: see `bound.bounds_of`. Plain attention moves its scores as well."""
    if stem == attention.STEM:
        rows = rows.assign(bytes=attention.moved_bytes(rows))
    return bounds_of(evidence, stem, rows)


def ratio_tables(one: MachineEvidence, other: MachineEvidence) -> list[Table]:
    """For each benchmark with times a table of the cells that both machines measured."""
    return [table for stem in _timed() if (table := _table(one, other, stem)) is not None]


def _timed() -> list[str]:
    return [stem for stem in stems() if stem != CEILINGS and isinstance(load(stem), Timed)]


def _table(one: MachineEvidence, other: MachineEvidence, stem: str) -> Table | None:
    rows, others = _shared(one, other, stem)
    if rows.empty:
        return None
    compared = compared_apart(rows, others)
    bounds = _bounds(one, stem, compared[0]), _bounds(other, stem, compared[1])
    columns = [
        time(one.name, medians(compared[0]), "one"),
        time(other.name, medians(compared[1]), "other"),
        speedup(f"{one.name} over {other.name}", _ratios(rows, others), "one.over.other"),
        share("data sheets", _expected(one, other, rows, bounds[0]), "sheets", "", "ratio"),
        text("bound by", text_cells(_both(*bounds)), "bound"),
    ]
    cell = [*(axis.name for axis in load(stem).axes), "implementation", "phase"]
    times = TIMES + (LASTING if (rows["phase"] == STEP).any() else "")
    note = (
        f"{times} Above one, the first machine is faster. Intervals: of the rounds of both runs;"
        " they do not cover how runs differ, nor how two GPUs of one kind do. Bound by: on the"
        f" first machine, then on the second if that differs.{_meanings(*bounds)}"
    )
    if None not in (data_sheet(one), data_sheet(other)):
        note += (
            " Data sheets: the ratio of what bounds the cell on the first machine: bandwidth, or"
            " the dense rate of its numerics."
        )
    if unequal := unequal_software(one, other):
        note += f" Unequal software, which the ratios include: {'; '.join(unequal)}."
    return side_by_side(load(stem).title, rows, cell, columns, note)


def _shared(
    one: MachineEvidence, other: MachineEvidence, stem: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The timed rows of both machines with the same cell and phase, with the same labels."""
    frames = [evidence.frame(stem) for evidence in (one, other)]
    keys = [*(axis.name for axis in load(stem).axes), "implementation", "phase"]
    if any(frame is None or not {*keys} <= {*frame} for frame in frames):
        return pd.DataFrame(), pd.DataFrame()
    shown = [frame[gates.shown(frame) & frame["rounds_ms"].notna()] for frame in frames]
    left, right = (frame[keys].drop_duplicates().astype(str) for frame in shown)
    pairs = left.reset_index(names="one").merge(right.reset_index(names="other"), on=keys)
    rows = shown[0].loc[pairs["one"]]
    return rows, shown[1].loc[pairs["other"]].set_axis(rows.index)


def _ratios(rows: pd.DataFrame, others: pd.DataFrame) -> pd.Series:
    """A cell ``1.42x (1.38-1.45)`` for each row: time on the other machine over time on this."""
    sides = [parse_rounds(of["rounds_ms"]) for of in compared_apart(others, rows)]
    sides = _same_width(*sides)
    found = unpaired(*sides)
    disturbed = (marks.disturbed(rows) | marks.disturbed(others)).to_numpy(bool)
    floor = np.fmax(*(floors_of(of, noise_floors(of)["floor"]) for of in (rows, others)))
    floor = np.fmax(floor, resolution(*sides))
    p = adjusted(np.where(disturbed, np.nan, found.p))
    said = verdict(found, floor, p <= FALSE_DISCOVERY, disturbed)
    names = zip(marks.names_of(rows), marks.names_of(others), strict=True)
    parts = _lines(found, said).itertuples(index=False)
    keys = rows["key"] if "key" in rows else [None] * len(rows)
    made = [
        speedup_cell(part, True, marks.both(*pair), key)
        for part, pair, key in zip(parts, names, keys, strict=True)
    ]
    return pd.Series(made, rows.index, dtype=object)


def _lines(found: Ratio, said: np.ndarray) -> pd.DataFrame:
    names = ("ratio", "low", "high", "rounds")
    return pd.DataFrame({**{name: getattr(found, name) for name in names}, "verdict": said})


def _same_width(*sides: np.ndarray) -> list[np.ndarray]:
    """Both matrices, padded with NaN to the same number of rounds."""
    width = max(side.shape[1] for side in sides)
    return [
        np.pad(side, ((0, 0), (0, width - side.shape[1])), constant_values=np.nan) for side in sides
    ]


def _expected(
    one: MachineEvidence, other: MachineEvidence, rows: pd.DataFrame, bounds: Sequence
) -> pd.Series:
    """A cell for each row with the ratio of the data sheets in what bounds the row."""
    sheets = data_sheet(one), data_sheet(other)
    numerics = rows["dtype"] if "dtype" in rows else [""] * len(rows)
    found = [_of_sheets(sheets, what, dtype) for what, dtype in zip(bounds, numerics, strict=True)]
    return pd.Series([number_cell(value, ratio) for value in found], rows.index, dtype=object)


def _of_sheets(sheets: Sequence[DataSheet | None], what: str | None, dtype: str) -> float | None:
    if None in sheets or what not in (COMPUTE, MEMORY):
        return None
    if what == MEMORY:
        return sheets[0].bandwidth_gbps / sheets[1].bandwidth_gbps
    rates = [sheet.tflops.get(dtype_of(dtype).matmul) for sheet in sheets]
    return None if None in rates else rates[0] / rates[1]


def _both(ones: pd.Series, others: pd.Series) -> pd.Series:
    words = [
        one if absent(other) or one == other else f"{EMPTY if absent(one) else one}, {other}"
        for one, other in zip(ones, others, strict=True)
    ]
    return pd.Series(words, ones.index, dtype=object)
