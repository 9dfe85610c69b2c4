"""The share of each class of kernels, a bar for each phase and way of running it."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels
from lmperf.reporting.kernel_classes import CLASSES, MATMUL
from lmperf.reporting.numbers import listed, percent, significant
from lmperf.reporting.sections.profiles.shares import STEM, kind_of
from lmperf.reporting.sections.profiles.tables import usual

BAR, GAP = 1.0, 0.6  # between bars of one group, and what is added between groups
INCHES_A_BAR, INCHES_AROUND = 0.26, 1.5


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Bars to 100 %, the usual size; beside each the time of its kernels."""
    if evidence.frame(STEM) is None or usual(evidence).empty:
        return None
    cases = usual(evidence)
    groups = [rows for _, rows in cases.groupby(["dtype", "implementation"], sort=False)]
    height = INCHES_AROUND + INCHES_A_BAR * (len(cases) + GAP * len(groups) + 2)
    drawn, (axis,) = panels(_title(cases), height=height)
    places, labels, at = [], [], 0.0
    for rows in groups:
        axis.text(0.6, at, _way(rows.iloc[0]), va="center", fontweight="bold")
        places += [at + BAR * (place + 1) for place in range(len(rows))]
        labels += [phase_words(phase) for phase in rows["phase"]]
        at = places[-1] + BAR + GAP
    _bars(axis, pen, pd.concat(groups), places)
    axis.set_yticks(places, labels)
    axis.set_ylim(places[-1] + GAP, -GAP)
    axis.set_xlim(0, 112)
    axis.set_xticks(range(0, 101, 20))
    axis.set_xlabel(
        f"share of the time of {kind_of(evidence)} (%); at the end of a bar, their time"
    )
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    legend_below(drawn, [axis])
    return drawn


def _bars(axis, pen: Pen, cases: pd.DataFrame, places: list[float]) -> None:
    left = pd.Series(0.0, cases.index)
    for name, kind in CLASSES.items():
        share = 100 * cases[name] / cases["total_ms"]
        if share.any():
            look = pen.filled(kind.look.colour, kind.look.hatch)
            axis.barh(places, share, 0.8, left=left, label=kind.words, **look)
        left += share
    for place, total in zip(places, cases["total_ms"], strict=True):
        axis.text(101, place, f"{significant(total)} ms", va="center")


def _way(row: pd.Series) -> str:
    return f"{dtype_words(row['dtype'])}, {implementation_words(row['implementation'])}"


def _title(cases: pd.DataFrame) -> str:
    """What matmuls take of the last phase, by numerics, for the first way of running it."""
    last = having(
        cases, phase=cases["phase"].iloc[-1], implementation=cases["implementation"].iloc[0]
    )
    shares = zip(last["dtype"], last[MATMUL] / last["total_ms"], strict=True)
    words = listed(f"{percent(share, 0)} in {dtype_words(dtype)}" for dtype, share in shares)
    phase, way = (
        phase_words(last["phase"].iloc[0]),
        implementation_words(last["implementation"].iloc[0]),
    )
    return f"Of a {phase} matmuls take {words} ({last['size'].iloc[0]}, {way})"
