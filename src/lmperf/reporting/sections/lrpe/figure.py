"""The figure of md_lrpe_cosine: GB/s of each implementation and of a copy, by positions."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.figures import (
    SMALL_TEXT,
    WIDE,
    Pen,
    legend_below,
    length,
    panels,
    powers_of_two,
    whiskers,
)
from lmperf.reporting.numbers import Spread, counted, percent, ranged
from lmperf.reporting.rounds import median_intervals
from lmperf.reporting.sections.lrpe import shapes
from lmperf.reporting.speedup import averaged

COPY = "copy"


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw GB/s against the number of positions, a panel per phase, a line per implementation.

    Shows shapes with the fewest axes and the fewest extra tokens. None if they all have the same
    number of positions.
    """
    frame = selected(evidence)
    if frame is None:
        return None
    names = in_order("implementation", frame["implementation"])
    drawn, axes = panels(title(evidence, frame), frame["phase"].nunique(), sharey=True)
    for axis, (phase, rows) in zip(axes, groups(frame, "phase"), strict=True):
        for name, line in groups(rows, "implementation"):
            line = line.drop_duplicates("positions", keep="last").sort_values("positions")
            look = pen.line(name, names)
            axis.plot(line["positions"], line["gbps"], label=implementation_words(name), **look)
            rates = (line["gbps"] * line["median_ms"] / ms for ms in median_intervals(line)[::-1])
            whiskers(axis, line["positions"], line["gbps"], rates, look["color"])
        _dip(axis, pen, rows)
        powers_of_two(axis, rows["positions"])
        axis.set_title(phase_words(phase))
        axis.set_xlabel("positions")
    # Set the limit after all panels are drawn: they share the axis.
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("GB/s")
    legend_below(drawn, axes)
    return drawn


def selected(evidence: MachineEvidence) -> pd.DataFrame | None:
    """The rows of the figure; None if it has nothing to show."""
    frame = shapes.rows_of(evidence)
    if frame is None or not shapes.leads(frame):
        return None
    frame = having(frame[gates.shown(frame)], dtype=shapes.numerics(frame))
    for name in ("axes", "extra_tokens"):
        frame = frame[frame[name] == frame[name].min()]
    if frame["positions"].nunique() < 2 or not shapes.leads(frame):
        return None
    return frame


def _dip(axis: Axes, pen: Pen, rows: pd.DataFrame) -> None:
    """Label the positions at which the copy is slower than at both neighbours: its own dips.

    A share of the copy's speed is too high there, so a reader must see why.
    """
    wide = rows.pivot_table("gbps", "positions", "implementation", aggfunc="last")
    copy = wide.get(COPY, pd.Series(dtype=float)).dropna()
    lower = np.minimum(copy.shift(), copy.shift(-1))
    for at, rate in copy[copy < (1 - WIDE) * lower].items():
        below = sorted([0.0, *(each for each in wide.loc[at].dropna() if each <= rate)])
        gap = int(np.argmax(np.diff(below)))
        middle = (below[gap] + below[gap + 1]) / 2
        axis.annotate(
            f"dip of the copy\nat {length(at)}",
            (at, rate),
            (at, middle),
            **{"ha": "center", "va": "center", "fontsize": SMALL_TEXT},
            arrowprops={"arrowstyle": "-", "color": pen.colour("grey"), "linewidth": 1},
        )


def title(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    """The title: the share of the copy's speed that the lead implementation reaches."""
    lead = shapes.leads(frame)[0]
    what = f"{implementation_words(lead)}, {dtype_words(shapes.numerics(frame))}"
    what += _kind(shapes.rows_of(evidence), frame)
    # As the finding does: a share near 100 % is unresolved as a difference, but precise.
    over = shapes.over(evidence, lead, COPY, averaged)
    rows = frame[frame["large"]].join(over, how="inner")
    if rows.empty:
        return f"Bandwidth of md_lrpe_cosine, {what}"
    shares = [
        f"{phase_words(phase)} {ranged(Spread.of(part['ratio']), percent)}"
        for phase, part in groups(rows, "phase")
    ]
    least = shapes.large_words(frame)
    return f"md_lrpe_cosine {least} ({what}), share of a copy's speed: {', '.join(shares)}"


def _kind(rows: pd.DataFrame, drawn: pd.DataFrame) -> str:
    """In words, which shapes are drawn, if others were measured: ``, 1 axis, 0 extra tokens``."""
    axes, extra = (drawn[name].iloc[0] for name in ("axes", "extra_tokens"))
    axes = f"{axes} {'axis' if axes == 1 else 'axes'}"
    several = {"axes": axes, "extra_tokens": counted(extra, "extra token")}
    return "".join(f", {words}" for name, words in several.items() if rows[name].nunique() > 1)
