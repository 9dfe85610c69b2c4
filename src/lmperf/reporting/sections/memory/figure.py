"""The memory figure: tensors alive during a forward and a train step, stacked by category."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.sections.memory.peaks import MIB_IN_GIB
from lmperf.reporting.sections.memory.timeline import levels, observed, spans

LOOKS = {
    "parameters": ("blue", ""),
    "optimizer": ("mustard", "///"),
    "inputs": ("grey", "||"),
    "gradients": ("orange", "\\\\\\"),
    "activations": ("green", "--"),
    "temporary": ("violet", "xxx"),
}
# A category that never reaches this share of the highest peak is not drawn.
LEAST_SHARE = 0.01
MOST_POINTS = 125
EDGE = 0.27
ROOM = 1.3


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw a panel per phase of the largest size: stacked GiB over allocations and releases.

    The dtype is that of the first recorded row. None without a recording.
    """
    curves, phases = observed(evidence, "curve"), observed(evidence, "phase")
    if curves.empty:
        return None
    first = having(curves, size=in_order("size", curves["size"])[-1]).iloc[0]
    cell = first[["size", "context_length", "batch", "dtype"]]
    curves, phases = having(curves, **cell), having(phases, **cell)
    calls = {
        phase: _from_its_start(having(curves, phase=phase), spans(having(phases, phase=phase)))
        for phase in in_order("phase", curves["phase"])
    }
    widths = [2 if phase == "train_step" else 1 for phase in calls]
    title = _title(cell, {phase: curve for phase, (curve, _) in calls.items()})
    drawn, axes = panels(title, len(calls), sharey=True, width_ratios=widths)
    top = max(levels(curve).sum(axis=1).max() for curve, _ in calls.values()) / MIB_IN_GIB
    for axis, (phase, (curve, parts)) in zip(axes, calls.items(), strict=True):
        _panel(axis, pen, curve, LEAST_SHARE * top)
        _mark(axis, pen, parts)
        axis.set_title(phase_words(phase))
    axes[0].set_ylim(0, ROOM * top)
    axes[0].set_ylabel("tensors (GiB)")
    legend_below(drawn, axes)
    return drawn


def _from_its_start(curve: pd.DataFrame, parts: list) -> tuple[pd.DataFrame, list]:
    """The curve and its phases, moved so that the call starts at 0; at most MOST_POINTS points.

    Of each stretch of points, the one with the most memory is kept.
    """
    start = parts[0][1]
    curve = curve[curve["position"] >= start]
    stretch = (np.arange(len(curve)) + 1) // -(-len(curve) // MOST_POINTS)
    curve = curve.loc[levels(curve).sum(axis=1).groupby(stretch).idxmax()]
    moved = curve.assign(position=curve["position"] - start)
    return moved, [(name, begin - start, end - start) for name, begin, end in parts]


def _title(cell: pd.Series, curves: dict[str, pd.DataFrame]) -> str:
    what = f"{cell['size']}, context {cell['context_length']:g}, {dtype_words(cell['dtype'])}"
    if set(curves) < {"forward", "train_step"}:
        return f"Memory over a {phase_words(next(iter(curves)))}, {what}"
    forward, step = curves["forward"], curves["train_step"]
    times = significant(levels(step).sum(axis=1).max() / levels(forward).sum(axis=1).max(), 2)
    by_category = levels(step).loc[levels(step).sum(axis=1).idxmax()]
    most = f"{percent(by_category.max() / by_category.sum(), 0)} of its peak is"
    return (
        f"A train step takes {times} times the memory of a forward; {most} {by_category.idxmax()}"
        f" ({what})"
    )


def _panel(axis: Axes, pen: Pen, curve: pd.DataFrame, least: float) -> None:
    """Draw each category that ever reaches ``least`` GiB, and label the highest total."""
    at, by_category = curve["position"].to_numpy(float), levels(curve) / MIB_IN_GIB
    below = np.zeros(len(curve))
    for name, level in by_category.items():
        if level.max() >= least:
            above = below + level.to_numpy(float)
            axis.fill_between(at, below, above, label=name, **pen.filled(*LOOKS[name]))
            below = above
    total = by_category.sum(axis=1).to_numpy(float)
    top, inside = total.argmax(), (EDGE * at.max(), (1 - EDGE) * at.max())
    axis.annotate(
        f"peak {significant(total[top])} GiB",
        (np.clip(at[top], *inside), total[top]),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        bbox={"facecolor": pen.theme.background, "edgecolor": "none", "pad": 1},
    )


def _mark(axis: Axes, pen: Pen, parts: list[tuple[str, float, float]]) -> None:
    """Name the phases of the call, with a dotted line at the start of each that allocates."""
    for name, start, stop in parts:
        if start > 0 and stop > start:
            axis.axvline(start, color=pen.theme.ink, linewidth=1, linestyle=":")
        if len(parts) > 1 and stop > start:
            place = axis.get_xaxis_transform()
            axis.text((start + stop) / 2, 0.97, name, transform=place, ha="center", va="top")
    axis.set_xlabel("allocations and releases")
    axis.set_xlim(0, parts[-1][2])
    axis.xaxis.set_major_locator(MaxNLocator(4 if len(parts) > 1 else 2, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
