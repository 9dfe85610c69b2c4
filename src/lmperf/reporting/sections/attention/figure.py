"""The figure of plain attention: time and memory up to the first length that does not fit."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import (
    Pen,
    legend_below,
    length,
    logarithmic,
    panels,
    powers_of_two,
)
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.attention.tables import STEM, usual

END = "does not fit"
MARGIN, TICKS = 1.4, 4
GROWN = {
    ("median_ms", "forward"): "forward time",
    ("median_ms", "backward"): "backward time",
    ("peak_mib", "backward"): "peak memory",
}


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw forward time, backward time (median ms) and peak memory of the backward (MiB) by length.

    Each quantity has a panel. The rows are those of ``tables.usual``: one dtype, one d_head. None
    if no such row may be shown.
    """
    frame = usual(evidence)
    if frame is None:
        return None
    quantities = [(phase, "median_ms") for phase in in_order("phase", frame["phase"])]
    quantities = [each for each in (*quantities, ("backward", "peak_mib")) if _has(frame, *each)]
    if not quantities:
        return None
    drawn, axes = panels(_title(frame), len(quantities))
    for axis, (phase, column) in zip(axes, quantities, strict=True):
        _panel(axis, pen, frame, phase, column)
    legend_below(drawn, axes)
    return drawn


def _has(frame: pd.DataFrame, phase: str, column: str) -> bool:
    """Whether the panel of a phase and column has a value; a logarithmic axis needs one."""
    return bool(having(frame[gates.shown(frame)], phase=phase)[column].notna().any())


def _title(frame: pd.DataFrame) -> str:
    """The title: growth of time and peak memory over the two longest lengths, first OOM length."""
    what = f"Plain attention, d_head {frame['d_head'].iloc[0]:g}"
    what += f", {dtype_words(frame['dtype'].iloc[0])}"
    full = frame.loc[frame["status"] == "oom", "seq_len"]
    end = f"; {length(full.min())} {END}" if len(full) else ""
    sound = gates.shown(frame) & ~marks.doubtful(frame, STEM)
    rows = having(frame[sound], implementation="eager")
    wide = rows.pivot_table(["median_ms", "peak_mib"], "seq_len", "phase").iloc[-2:]
    grown = (wide.iloc[-1] / wide.iloc[0]).dropna() if len(wide) == 2 else {}
    found = {words: grown[key] for key, words in GROWN.items() if key in grown}
    factors = [f"{significant(factor, 2)} times the {words}" for words, factor in found.items()]
    if not factors:
        return f"{what}: time and memory against the length{end}"
    lengths = " to ".join(length(n) for n in wide.index)
    return f"{what}, {lengths}: {', '.join(factors)}{end}"


def _apart(lengths: pd.Series) -> list[float]:
    """The lengths to label on the axis, each at least TICKS times the previous labelled length."""
    kept: list[float] = []
    for value in sorted(lengths.unique()):
        if not kept or value >= TICKS * kept[-1]:
            kept.append(value)
    return kept


def _panel(axis, pen: Pen, frame: pd.DataFrame, phase: str, column: str) -> None:
    """Draw a line for each implementation, and a dotted line at each length that does not fit."""
    rows = having(frame, phase=phase)
    names = in_order("implementation", rows["implementation"])
    for name in names:
        line = having(rows[gates.shown(rows)], implementation=name).dropna(subset=[column])
        line = line.drop_duplicates("seq_len", keep="last").sort_values("seq_len")
        look = pen.line(name, names)
        axis.plot(line["seq_len"], line[column], label=implementation_words(name), **look)
    powers_of_two(axis, _apart(frame["seq_len"]))
    axis.set_xlim(frame["seq_len"].min() / MARGIN, frame["seq_len"].max() * MARGIN)
    logarithmic(axis)
    for end in frame.loc[frame["status"] == "oom", "seq_len"].unique():
        axis.axvline(end, color=pen.colour("grey"), linestyle=":", label=END)
    memory = column == "peak_mib"
    words = phase_words(phase)
    axis.set_title(f"peak of the {words} (MiB)" if memory else f"{words} (ms)")
    axis.set_xlabel("length")
