"""The figure of plain attention: time and memory up to the first length that does not fit.

A second row shows the gain of compiling, which a logarithmic axis of four decades hides.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import (
    SMALL_TEXT,
    WIDE,
    Pen,
    grid,
    legend_below,
    length,
    logarithmic,
    powers_of_two,
    whiskers,
)
from lmperf.reporting.numbers import ratio, significant
from lmperf.reporting.rounds import median_intervals
from lmperf.reporting.sections.attention.tables import COMPILED, EAGER, STEM, usual
from lmperf.reporting.speedup import every
from lmperf.statistics import UNRESOLVED

END = "does not fit"
MARGIN, TICKS = 1.4, 4
GAIN, UNCLEAR = "PyTorch / compiled", "not resolved"
INCHES, INCHES_A_GAIN = 3.4, 1.5
POINTS_AN_INCH = 72
NUMBER_INCHES, PANEL_INCHES = 0.45, 1.85  # least distance of two numbers; width of a panel
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
    quantities = quantities_of(frame)
    if not quantities:
        return None
    gains = [_gain(evidence, frame, *each) for each in quantities]
    several = any(len(gain) for gain in gains)
    look = {"height_ratios": (INCHES - 1, INCHES_A_GAIN)} if several else {}
    height = INCHES + INCHES_A_GAIN * several
    drawn, axes = grid(title(frame), 1 + several, len(quantities), height, sharex="col", **look)
    for axis, (phase, column) in zip(axes[0], quantities, strict=True):
        _panel(axis, pen, frame, phase, column)
    for axis in axes[-1]:
        axis.set_xlabel("length")
    if several:
        axes[1][0].set_ylabel(GAIN)
        for axis, gain in zip(axes[1], gains, strict=True):
            _gain_panel(axis, pen, gain)
    legend_below(drawn, drawn.axes)
    return drawn


def quantities_of(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """The phase and the column of each panel that has a value."""
    found = [(phase, "median_ms") for phase in in_order("phase", frame["phase"])]
    return [each for each in (*found, ("backward", "peak_mib")) if _has(frame, *each)]


def words_of(phase: str, column: str) -> str:
    """The title of a panel."""
    words = phase_words(phase)
    return f"peak of the {words} (MiB)" if column == "peak_mib" else f"{words} (ms)"


def _gain(evidence: MachineEvidence, frame: pd.DataFrame, phase: str, column: str) -> pd.DataFrame:
    """Eager over compiled at each length: ``ratio``, ``low``, ``high``, ``clear`` if resolved."""
    rows = having(frame, phase=phase)
    if column == "median_ms":
        found = every(evidence, STEM, COMPILED, EAGER)
        found = found[found.index.isin(rows.index)]
        return found.assign(clear=found["holds"] & (found["verdict"] != UNRESOLVED))
    rows = rows[gates.shown(rows)]
    peaks = (series.rows(rows).set_index("seq_len")[column] for series in (EAGER, COMPILED))
    eager, compiled = (each[~each.index.duplicated(keep="last")] for each in peaks)
    over = (eager / compiled).dropna()
    return pd.DataFrame({"ratio": over, "low": over, "high": over, "clear": True}).reset_index()


def _gain_panel(axis, pen: Pen, gain: pd.DataFrame) -> None:
    """Draw the gain of compiling at each length, with the numbers of ``_numbered``."""
    if gain.empty:
        words = {"transform": axis.transAxes, "ha": "center", "va": "center"}
        axis.text(0.5, 0.5, "not measured", **words)
        axis.set_yticks([])
        return
    look = pen.line("compiled")
    for clear, face in ((True, look["color"]), (False, pen.theme.background)):
        rows = gain[gain["clear"] == clear]
        marker = {"marker": look["marker"], "color": look["color"], "markerfacecolor": face}
        if len(rows):
            label = f"_{GAIN}" if clear else UNCLEAR  # the axis has the name
            axis.plot(rows["seq_len"], rows["ratio"], linestyle="none", label=label, **marker)
    whiskers(axis, gain["seq_len"], gain["ratio"], (gain["low"], gain["high"]), look["color"])
    # An interval is drawn only if it is wide; the number stands above what is drawn.
    drawn_to = gain["high"].where(gain["high"] > (1 + WIDE) * gain["ratio"], gain["ratio"])
    low, high = np.log2(axis.get_xlim())
    points = PANEL_INCHES * (np.log2(gain["seq_len"].to_numpy(float)) - low) / (high - low)
    inches = points.clip(NUMBER_INCHES / 2, PANEL_INCHES - NUMBER_INCHES / 2)
    for row in _numbered(inches, gain["ratio"].to_numpy()):
        at = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_TEXT}
        n, value = gain["seq_len"].iloc[row], gain["ratio"].iloc[row]
        offset = POINTS_AN_INCH * (inches - points)[row], 6
        axis.annotate(ratio(value), (n, drawn_to.iloc[row]), offset, **at)
    axis.axhline(1, color=pen.theme.ink, linewidth=0.8)
    ends = [1, *gain["low"], *drawn_to]
    span = max(max(ends) - min(ends), 0.1)
    axis.set_ylim(min(ends) - 0.12 * span, max(ends) + 0.4 * span)


def _numbered(inches: np.ndarray, values: np.ndarray) -> list[int]:
    """The points that get a number, those furthest from the median value first.

    A point without room beside those before it is left out.

    inches: where the number of each point would be on the x axis.
    """
    kept: list[int] = []
    for row in np.argsort(-abs(values - np.median(values)), kind="stable").tolist():
        if all(abs(inches[row] - inches[other]) >= NUMBER_INCHES for other in kept):
            kept.append(row)
    return kept


def _has(frame: pd.DataFrame, phase: str, column: str) -> bool:
    """Whether the panel of a phase and column has a value; a logarithmic axis needs one."""
    return bool(having(frame[gates.shown(frame)], phase=phase)[column].notna().any())


def title(frame: pd.DataFrame) -> str:
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
        if column == "median_ms":
            ends = median_intervals(line)
            whiskers(axis, line["seq_len"], line[column], ends, look["color"])
    powers_of_two(axis, _apart(frame["seq_len"]))
    axis.set_xlim(frame["seq_len"].min() / MARGIN, frame["seq_len"].max() * MARGIN)
    logarithmic(axis)
    for end in frame.loc[frame["status"] == "oom", "seq_len"].unique():
        axis.axvline(end, color=pen.colour("grey"), linestyle=":", label=END)
    axis.set_title(words_of(phase, column))
