"""Y2: memory over the course of a train step, stacked by category."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.figures import BLUE, GREEN, GREY, MUSTARD, ORANGE, VIOLET, panels
from lmperf.reporting.numbers import dtype_words, significant

STEM = "memory_timeline"
CELL = ["size", "context_length", "batch", "dtype", "phase"]
COLOURS = {
    "parameters": BLUE,
    "optimizer": MUSTARD,
    "inputs": GREY,
    "gradients": ORANGE,
    "activations": GREEN,
    "temporary": VIOLET,
}
MIB_IN_GIB = 1024


def figure(evidence: MachineEvidence) -> Figure | None:
    """Stacked GiB over the events of a train step, one panel per numerics of the largest size."""
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    frame = in_reading_order(frame[frame["phase"] == "train_step"], first=CELL)
    if frame.empty:
        return None
    frame = frame[frame["size"] == frame["size"].iloc[-1]]
    dtypes = list(dict.fromkeys(frame["dtype"]))
    drawn, axes = panels(len(dtypes), height=3.8, sharey=True)
    for axis, dtype in zip(axes, dtypes, strict=True):
        _panel(axis, frame[frame["dtype"] == dtype])
        axis.set_title(dtype_words(dtype))
    axes[0].set_ylabel("GiB")
    size, context = frame["size"].iloc[0], int(frame["context_length"].iloc[0])
    what = f"allocations and releases of a train step (size {size}, context {context})"
    drawn.supxlabel(what, fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="upper center", ncols=len(labels), frameon=False, fontsize=8)
    return drawn


def _panel(axis, frame: pd.DataFrame) -> None:
    points = frame[frame["table"] == "curve"].sort_values("position")
    levels = [points[f"{name}_mib"].to_numpy(float) / MIB_IN_GIB for name in COLOURS]
    at = points["position"].to_numpy(float)
    axis.stackplot(at, levels, labels=list(COLOURS), colors=list(COLOURS.values()), linewidth=0)
    total = np.sum(levels, axis=0)
    top = int(total.argmax())
    alive = max(COLOURS, key=lambda name: levels[list(COLOURS).index(name)][top])
    axis.annotate(
        f"peak {significant(total[top])} GiB\nmostly {alive}",
        (at[top], total[top]),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
    axis.set_ylim(0, 1.25 * total.max())
    for _, row in frame[frame["table"] == "phase"].iterrows():
        if row["name"] != "end":
            axis.axvline(row["position"], color=GREY, linewidth=0.8, linestyle=":")
            axis.text(row["position"], 1.2 * total.max(), f" {row['name']}", fontsize=7, va="top")
