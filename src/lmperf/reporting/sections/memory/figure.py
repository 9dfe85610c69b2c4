"""Memory over the course of a forward pass and of a train step, stacked by category."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels
from lmperf.reporting.numbers import listed, percent, ratio, significant
from lmperf.reporting.sections.memory.peaks import MIB_IN_GIB
from lmperf.reporting.sections.memory.timeline import levels, observed, spans

LOOKS = {
    "parameters": ("blue", ""),
    "optimizer": ("mustard", "///"),
    "inputs": ("grey", "||"),
    "gradients": ("orange", "\\\\\\"),
    "activations": ("green", ".."),
    "temporary": ("violet", "xxx"),
}
# A category that never holds this share of the highest peak is as thin as a line: not drawn.
LEAST_SHARE = 0.01
EDGE = 0.2
ROOM = 1.3


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """A panel a phase of the largest size, in its first numerics: stacked GiB over its events."""
    curves, phases = observed(evidence, "curve"), observed(evidence, "phase")
    if curves.empty:
        return None
    size = in_order("size", curves["size"])[-1]
    last = having(curves, size=size).iloc[0]
    cell = {name: last[name] for name in ("size", "context_length", "batch", "dtype")}
    curves, phases = having(curves, **cell), having(phases, **cell)
    starts = phases.groupby("phase")["position"].min()
    phases = phases.assign(position=phases["position"] - phases["phase"].map(starts))
    curves = curves.assign(position=curves["position"] - curves["phase"].map(starts))
    # What is older than the call was entered at once, and not seen to come.
    curves = curves[curves["position"] >= 0]
    shown = {phase: having(curves, phase=phase) for phase in in_order("phase", curves["phase"])}
    if not shown:
        return None
    widths = [2 if phase == "train_step" else 1 for phase in shown]
    drawn, axes = panels(_title(cell, shown), len(shown), sharey=True, width_ratios=widths)
    top = max(_top(points).sum() for points in shown.values())
    for axis, (phase, points) in zip(axes, shown.items(), strict=True):
        _panel(axis, pen, points, LEAST_SHARE * top)
        _mark(axis, pen, having(phases, phase=phase), points)
        axis.set_title(phase_words(phase))
    axes[0].set_ylim(0, ROOM * top / MIB_IN_GIB)
    axes[0].set_ylabel("tensors (GiB)")
    legend_below(drawn, axes)
    return drawn


def _title(cell: dict, shown: dict[str, pd.DataFrame]) -> str:
    what = f"{cell['size']}, context {cell['context_length']:g}, {dtype_words(cell['dtype'])}"
    tops = {phase: _top(points) for phase, points in shown.items()}
    if "train_step" not in tops:
        return f"Memory over a forward, {what}"
    step = tops["train_step"]
    most = f"{percent(step.max() / step.sum(), 0)} of its peak is {step.idxmax()}"
    if "forward" not in tops:
        return f"Memory over a train step, {what}: {most}"
    peaks = {phase: points["peak_mib"].iloc[0] for phase, points in shown.items()}
    times = ratio(peaks["train_step"] / peaks["forward"]).rstrip("x")
    return f"A train step takes {times} times what a forward does; {most} ({what})"


def _top(points: pd.DataFrame) -> pd.Series:
    """MiB by category at the highest point."""
    by_category = levels(points)
    return by_category.loc[by_category.sum(axis=1).idxmax()]


def _panel(axis: Axes, pen: Pen, points: pd.DataFrame, least: float) -> None:
    at, by_category = points["position"].to_numpy(float), levels(points)
    below = np.zeros(len(points))
    for name, level in by_category.items():
        if level.max() < least:
            continue
        above = below + level.to_numpy(float) / MIB_IN_GIB
        axis.fill_between(at, below, above, label=name, **pen.filled(*LOOKS[name]))
        below = above
    total = by_category.sum(axis=1).to_numpy(float) / MIB_IN_GIB
    top = int(total.argmax())
    along = at[top] / at.max() if at.max() else 0.5
    axis.annotate(
        f"peak {significant(total[top])} GiB",
        (at[top], total[top]),
        xytext=(0, 5),
        textcoords="offset points",
        ha="left" if along < EDGE else "right" if along > 1 - EDGE else "center",
        bbox={"facecolor": pen.theme.background, "edgecolor": "none", "pad": 1},
    )


def _mark(axis: Axes, pen: Pen, phases: pd.DataFrame, points: pd.DataFrame) -> None:
    """Where each phase begins, its name above it."""
    found = spans(phases)
    end = max(found[-1][2], points["position"].max())
    for name, start, stop in found:
        if stop == start:
            continue
        middle = (start + stop) / 2
        if start > 0:
            axis.axvline(start, color=pen.theme.ink, linewidth=1, linestyle=":")
        if len(found) > 1:
            place = axis.get_xaxis_transform()
            axis.text(middle, 0.97, name, transform=place, ha="center", va="top")
    none = [name for name, start, stop in found if stop == start]
    without = f"\n({listed(none)}: none)" if none else ""
    axis.set_xlabel(f"allocations and releases{without}")
    axis.set_xlim(0, end)
    axis.xaxis.set_major_locator(MaxNLocator(4 if len(found) > 1 else 2, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
