"""Time and memory of plain attention against the length, and where it ends."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, logarithmic, panels, powers_of_two
from lmperf.reporting.sections.attention.tables import D_HEAD, STEM


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Panels: forward, backward (median ms), memory before backward (MiB); float32, one width."""
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    dtype = in_order("dtype", frame["dtype"])[0]
    d_head = min(frame["d_head"].unique(), key=lambda d: (abs(d - D_HEAD), d))
    frame = having(frame, dtype=dtype, d_head=d_head, batch=frame["batch"].max())
    frame = having(frame, causal=frame["causal"].max())
    shown = frame[gates.shown(frame)]
    if shown.empty:
        return None
    quantities = [(phase, "median_ms") for phase in in_order("phase", frame["phase"])]
    if having(shown, phase="backward")["saved_mib"].notna().any():
        quantities.append(("backward", "saved_mib"))
    what = f"d_head {d_head:g}, batch {frame['batch'].iloc[0]:g}, {dtype_words(dtype)}"
    drawn, axes = panels(
        f"Plain attention grows with the square of the length ({what})", len(quantities)
    )
    for axis, (phase, column) in zip(axes, quantities, strict=True):
        _panel(axis, pen, having(frame, phase=phase), column)
        held = column == "saved_mib"
        axis.set_title("before backward (MiB)" if held else f"{phase_words(phase)} (ms)")
        axis.set_xlabel("length")
    legend_below(drawn, axes)
    return drawn


def _panel(axis, pen: Pen, frame: pd.DataFrame, column: str) -> None:
    names = in_order("implementation", frame["implementation"])
    for name in names:
        rows = having(frame, implementation=name)
        ok = rows[gates.shown(rows)].dropna(subset=[column])
        ok = ok.drop_duplicates("seq_len", keep="last").sort_values("seq_len")
        axis.plot(
            ok["seq_len"], ok[column], label=implementation_words(name), **pen.line(name, names)
        )
    powers_of_two(axis, frame["seq_len"])
    axis.set_xlim(frame["seq_len"].min() / 1.25, frame["seq_len"].max() * 1.25)
    logarithmic(axis)
    for length in sorted(frame.loc[frame["status"] == "oom", "seq_len"].unique()):
        axis.axvline(length, color=pen.colour("grey"), linestyle=":")
