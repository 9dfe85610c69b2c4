"""The figure of the profiles: time per class of kernels, a bar per phase and implementation."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels
from lmperf.reporting.numbers import listed, significant
from lmperf.reporting.sections.profiles.kernel_classes import CLASSES
from lmperf.reporting.sections.profiles.rows import (
    CELL,
    classes_of,
    kind_of,
    matmul_shares,
    usual,
)
from lmperf.reporting.sections.profiles.tables import HEAD_LINES

GAP = 1.6  # space between groups in bar heights, for the name of the group
INCHES_A_BAR, INCHES_AROUND = 0.26, 2.0


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw the head table as stacked bars: share of each class, total kernel time at the end."""
    cases = usual(evidence).iloc[:HEAD_LINES]
    if cases.empty:
        return None
    group = cases.groupby(["dtype", "implementation"], sort=False).ngroup()
    places = pd.Series(1, cases.index).cumsum() + GAP * group
    height = INCHES_AROUND + INCHES_A_BAR * places.max()
    drawn, (axis,) = panels(_title(cases, kind_of(evidence)), height=height)
    for _, row in cases[~group.duplicated()].iterrows():
        way = f"{dtype_words(row['dtype'])}, {implementation_words(row['implementation'], CELL)}"
        axis.text(0.6, places[row.name] - 1, way, va="center", fontweight="bold")
    _bars(axis, pen, cases, places)
    axis.set_yticks(places, [phase_words(phase) for phase in cases["phase"]])
    axis.set_ylim(places.max() + 0.6, -0.6)
    axis.set_xlim(0, 112)
    axis.set_xticks(range(0, 101, 20))
    axis.set_xlabel(f"share of the {kind_of(evidence)} time (%); at the end of a bar, that time")
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    legend_below(drawn, [axis])
    return drawn


def _bars(axis, pen: Pen, cases: pd.DataFrame, places: pd.Series) -> None:
    left = pd.Series(0.0, cases.index)
    for name in classes_of(cases):
        share, kind = 100 * cases[name] / cases["total_ms"], CLASSES[name]
        look = pen.filled(kind.look.colour, kind.look.hatch)
        axis.barh(places, share, 0.8, left=left, label=kind.words, **look)
        left += share
    for place, total in zip(places, cases["total_ms"], strict=True):
        axis.text(101, place, f"{significant(total)} ms", va="center")


def _title(cases: pd.DataFrame, kind: str) -> str:
    """The title: share of matmuls in the last phase by dtype, for the first implementation."""
    first, last = cases.iloc[0], cases.iloc[-1]
    same = having(cases, phase=last["phase"], implementation=first["implementation"])
    way = f"{first['size']}, {implementation_words(first['implementation'], CELL)}"
    what = f"Of a {phase_words(last['phase'])}'s {kind} time"
    return f"{what}, matmuls take {listed(matmul_shares(same))} ({way})"
