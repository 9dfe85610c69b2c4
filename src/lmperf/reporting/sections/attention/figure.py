"""Time and memory of attention against the length, with the lengths that ran out of memory."""

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
    powers_of_two,
    unknown_names,
)
from lmperf.reporting.numbers import dtype_words, implementation_words, phase_words

USUAL_D_HEAD = 64


def figure(evidence: MachineEvidence) -> Figure | None:
    """Panels: forward, backward (median ms), memory before backward (MiB); one dtype and d_head."""
    frame = evidence.frame("attention")
    dtype = in_order("dtype", frame["dtype"])[0]
    d_head = min(frame["d_head"].unique(), key=lambda d: (abs(d - USUAL_D_HEAD), d))
    batch = frame["batch"].max()
    frame = frame[(frame["dtype"] == dtype) & (frame["d_head"] == d_head)]
    frame = frame[(frame["batch"] == batch) & (frame["causal"] == frame["causal"].max())]
    quantities = [(p, "median_ms") for p in in_order("phase", frame["phase"])]
    if frame.loc[frame["phase"] == "backward", "saved_mib"].notna().any():
        quantities.append(("backward", "saved_mib"))
    if not gates.shown(frame).any():
        return None
    drawn, axes = panels(len(quantities), height=3.4)
    for axis, (phase, column) in zip(axes, quantities, strict=True):
        _panel(axis, frame[frame["phase"] == phase], column)
        held = column == "saved_mib"
        axis.set_title("memory before backward (MiB)" if held else f"{phase_words(phase)} (ms)")
    what = f"batch {batch:g}, d_head {d_head:g}, {dtype_words(dtype)}"
    drawn.supxlabel(f"sequence length ({what})", fontsize=9)
    legend_above(drawn, axes)
    return drawn


def _panel(axis, frame: pd.DataFrame, column: str) -> None:
    names = in_order("implementation", frame["implementation"])
    unknown = unknown_names(names)
    for name in names:
        rows = frame[frame["implementation"] == name]
        ok = rows[gates.shown(rows)].dropna(subset=[column])
        ok = ok.drop_duplicates("seq_len", keep="last").sort_values("seq_len")
        axis.plot(
            ok["seq_len"], ok[column], label=implementation_words(name), **look(name, unknown)
        )
    powers_of_two(axis, frame["seq_len"])
    axis.set_xlim(frame["seq_len"].min() / 1.25, frame["seq_len"].max() * 1.25)
    logarithmic(axis)
    _mark_out_of_memory(axis, frame)


def _mark_out_of_memory(axis, frame: pd.DataFrame) -> None:
    full = frame[frame["status"] == "oom"]
    for length in sorted(full["seq_len"].unique()):
        axis.annotate(
            "OOM",
            (length, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=8,
        )
