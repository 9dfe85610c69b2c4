"""Bandwidth against the number of positions: one panel per direction, the copy as the ceiling."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.figures import (
    GREY,
    MUSTARD,
    legend_above,
    logarithmic,
    look,
    panels,
    powers_of_two,
    unknown_names,
)
from lmperf.reporting.numbers import dtype_words, implementation_words, phase_words
from lmperf.reporting.sections.lrpe.shapes import COPY, STEM, by_shape

# Both are orange elsewhere, where they do not meet.
HERE = {"compiled": {"color": MUSTARD, "marker": "v"}}


def figure(evidence: MachineEvidence) -> Figure | None:
    """GB/s of the bytes that have to move, one axis, without extra tokens where there are such."""
    frame = by_shape(evidence.frame(STEM))
    frame = frame[gates.shown(frame) & frame["bytes"].notna()]
    frame = frame[frame["axes"] == frame["axes"].min()]
    frame = frame[frame["extra_tokens"] == frame["extra_tokens"].min()]
    if frame.empty:
        return None
    dtype = in_order("dtype", frame["dtype"])[-1]
    frame = frame[frame["dtype"] == dtype]
    phases = in_order("phase", frame["phase"])
    drawn, axes = panels(len(phases), height=3.6, sharey=True)
    for axis, phase in zip(axes, phases, strict=True):
        _panel(axis, frame[frame["phase"] == phase])
        axis.set_title(phase_words(phase))
    axes[0].set_ylabel("GB/s")
    logarithmic(axes[0])
    what = f"{dtype_words(dtype)}, d_head {frame['d_head'].iloc[0]:g}"
    drawn.supxlabel(f"positions along one axis ({what})", fontsize=9)
    legend_above(drawn, axes)
    return drawn


def _panel(axis, frame: pd.DataFrame) -> None:
    names = in_order("implementation", frame["implementation"])
    unknown = unknown_names([name for name in names if name != COPY])
    for name in names:
        rows = frame[frame["implementation"] == name].drop_duplicates("positions", keep="last")
        style = {"color": GREY, "linestyle": "--"} if name == COPY else look(name, unknown)
        axis.plot(
            rows["positions"],
            rows["bytes"] / rows["median_ms"] / 1e6,
            label=implementation_words(name),
            **{**style, **HERE.get(name, {})},
        )
    powers_of_two(axis, frame["positions"])
