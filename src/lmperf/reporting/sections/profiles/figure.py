"""The figure of the profiles: ms per class of kernels, and the time the device waits for the host.

A bar is a train step of one implementation; with a single implementation, one of its phases.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import SMALL_TEXT, Pen, legend_below, number_at_end, panels
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.profiles.kernel_classes import CLASSES, MATMUL
from lmperf.reporting.sections.profiles.rows import CELL, KERNEL, classes_of, kind_of, usual

BAR = 0.72
INCHES_A_BAR, INCHES_AROUND = 0.44, 1.75
ROOM = 1.16  # of the longest bar, for the time at its end
# Of a bar without a wall time: the words at its end, and their share of the axis.
UNKNOWN = {KERNEL: "idle time not known", "operator": "wall time not known"}
WORDS_WIDE = 0.31
NUMBERED = 0.05  # the least share of the longest bar that has its number inside
WAITING = {KERNEL: "device waits for the host", "operator": "outside operators"}


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw each case as a bar: ms of each class, then the rest of the time without the profiler.

    A bar whose wall time is withheld ends with its classes, and says so.
    """
    cases, names = bars_of(evidence)
    if cases.empty:
        return None
    kind = kind_of(evidence)
    height = INCHES_AROUND + INCHES_A_BAR * len(cases)
    drawn, (axis,) = panels(title(cases, kind), height=height)
    _bars(axis, pen, cases.assign(place=range(len(cases))), kind)
    axis.set_yticks(range(len(cases)), names)
    axis.set_ylim(len(cases) - 0.45, -0.55)
    several = len(cases[["dtype", "implementation"]].drop_duplicates()) > 1
    of = f" of a {phase_words(cases['phase'].iloc[-1])}" if several else ""
    axis.set_xlabel(f"ms{of}; at the end of a bar: {_end_words(cases, kind)}")
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    legend_below(drawn, [axis])
    return drawn


def bars_of(evidence: MachineEvidence) -> tuple[pd.DataFrame, list[str]]:
    """The cases that are bars of the figure, and their names."""
    cases = usual(evidence)
    if cases.empty:
        return cases, []
    if len(cases[["dtype", "implementation"]].drop_duplicates()) == 1:
        return cases, [phase_words(phase) for phase in cases["phase"]]
    cases = having(cases, phase=cases["phase"].iloc[-1])
    return cases, _ways(cases)


def _end_words(cases: pd.DataFrame, kind: str) -> str:
    withheld = cases["withheld"]
    if not withheld.any():
        return f"{kind} time of wall time"
    some = "" if withheld.all() else " of wall time"
    return f"{kind} time{some}\n(wall time withheld where no row of E1 confirms it)"


def _ways(cases: pd.DataFrame) -> list[str]:
    pairs = zip(cases["dtype"], cases["implementation"], strict=True)
    return [f"{dtype_words(d)},\n{implementation_words(i, CELL)}" for d, i in pairs]


def _bars(axis: Axes, pen: Pen, cases: pd.DataFrame, kind: str) -> None:
    """Draw the classes side by side, the rest up to the wall time as an outline, and both sums."""
    longest = cases[["total_ms", "wall_ms"]].max().max()
    left = pd.Series(0.0, cases.index)
    for name in classes_of(cases):
        of = CLASSES[name]
        look = pen.filled(of.look.colour, of.look.hatch)
        axis.barh(cases["place"], cases[name], BAR, left=left, label=of.words, **look)
        for place, start, ms in zip(cases["place"], left, cases[name], strict=True):
            if ms >= NUMBERED * longest:
                _number(axis, pen, start + ms / 2, place, ms)
        left += cases[name]
    idle = cases[cases["wall_ms"] > cases["total_ms"]]
    outline = {"facecolor": "none", "edgecolor": pen.theme.ink, "linestyle": ":", "linewidth": 1.1}
    wait = idle["wall_ms"] - idle["total_ms"]
    if len(idle):
        axis.barh(idle["place"], wait, BAR, left=idle["total_ms"], label=WAITING[kind], **outline)
    for place, end, ms in zip(idle["place"], idle["total_ms"], wait, strict=True):
        if ms >= NUMBERED * longest:
            _number(axis, pen, end + ms / 2, place, ms)
    for case in cases.itertuples():
        words = significant(case.total_ms)
        words += f" of {significant(case.wall_ms)}" if case.wall_ms > case.total_ms else ""
        words += f", {UNKNOWN[kind]}" if case.withheld else ""
        number_at_end(axis, np.nanmax([case.total_ms, case.wall_ms]), case.place, words)
    open_ended = cases.loc[cases["withheld"], "total_ms"].max() / (1 - WORDS_WIDE)
    axis.set_xlim(0, np.nanmax([ROOM * longest, open_ended]))


def _number(axis: Axes, pen: Pen, x: float, y: float, ms: float) -> None:
    box = {"facecolor": pen.theme.background, "edgecolor": "none", "pad": 1}
    look = {"ha": "center", "va": "center", "fontsize": SMALL_TEXT, "bbox": box}
    axis.text(x, y, significant(ms), **look)


def title(cases: pd.DataFrame, kind: str) -> str:
    """The title: ms of matmuls in the last phase by dtype, for the first implementation."""
    first, last = cases.iloc[0], cases.iloc[-1]
    same = having(cases, phase=last["phase"], implementation=first["implementation"])
    parts = [
        f"{significant(case[MATMUL])} of {significant(case['total_ms'])} ms"
        f" in {dtype_words(case['dtype'])}"
        for _, case in same.iterrows()
    ]
    way = f"{first['size']}, {implementation_words(first['implementation'], CELL)}"
    what = f"Of a {phase_words(last['phase'])}'s {kind} time"
    return f"{what}, matmuls take {' and '.join(parts)} ({way})"
