"""The train step by size: one panel per dtype, one line per implementation."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.figures import (
    legend_above,
    logarithmic,
    look,
    panels,
    unknown_names,
)
from lmperf.reporting.numbers import dtype_words, implementation_words, phase_words


def figure(evidence: MachineEvidence) -> Figure | None:
    """Median ms of the last phase measured, at the context length with the most cells."""
    frame = evidence.frame("end_to_end")
    frame = frame[gates.shown(frame)]
    if frame.empty:
        return None
    phase = in_order("phase", frame["phase"])[-1]
    frame = frame[frame["phase"] == phase]
    context = _fullest(frame["context_length"])
    batch = _fullest(frame["batch"])
    frame = frame[(frame["context_length"] == context) & (frame["batch"] == batch)]
    sizes, dtypes = in_order("size", frame["size"]), in_order("dtype", frame["dtype"])
    drawn, axes = panels(len(dtypes), sharey=True)
    for axis, dtype in zip(axes, dtypes, strict=True):
        _panel(axis, frame[frame["dtype"] == dtype], sizes)
        axis.set_title(dtype_words(dtype))
    axes[0].set_ylabel(f"{phase_words(phase)} (ms, median)")
    drawn.supxlabel(f"model size (batch {batch:g}, context {context:g})", fontsize=9)
    logarithmic(axes[0])
    legend_above(drawn, axes)
    return drawn


def _fullest(column: pd.Series):
    counts = column.value_counts()
    return counts[counts == counts.max()].index.max()


def _panel(axis, frame: pd.DataFrame, sizes: list[str]) -> None:
    names = in_order("implementation", frame["implementation"])
    unknown = unknown_names(names)
    for name in names:
        times = frame[frame["implementation"] == name].groupby("size")["median_ms"].last()
        positions = [sizes.index(size) for size in sizes if size in times.index]
        values = [times[sizes[position]] for position in positions]
        axis.plot(positions, values, label=implementation_words(name), **look(name, unknown))
    axis.set_xticks(range(len(sizes)), sizes)
    axis.set_xlim(-0.3, len(sizes) - 0.7)
