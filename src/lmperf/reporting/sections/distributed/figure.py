"""The figure of the section: timelines of two strategies, and what every strategy hides.

Above, computation and communication of one step each of D3 and D4, on one scale of time. Below, a
bar for each strategy: the step under the profiler, with its exposed communication set apart.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import WIDTH, Pen, legend_below, number_at_end, wrapped
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.sections.distributed import rows

TIMELINES = ("flat", "overlapped")
LANES = {"communication": ("orange", "xx"), "computation": ("blue", "")}
REST, EXPOSED = "rest of the step", "exposed communication"
BAR, LANE = 0.62, 0.8
ROOM = 1.6  # for the number at the end of the longest bar
INCHES_A_TIMELINE, INCHES_A_BAR, INCHES_AROUND = 1.0, 0.24, 0.9


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw timelines and hidden shares at the largest size of the ledger; None without rows."""
    frame = largest(rows.ledger(evidence))
    if frame.empty:
        return None
    spans = spans_of(evidence, frame)
    names = in_order("implementation", frame["implementation"])[::-1]
    lines = INCHES_AROUND + INCHES_A_TIMELINE * len(spans) if spans else 0
    heights = [*([lines] if spans else []), INCHES_AROUND + INCHES_A_BAR * len(names)]
    drawn = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    drawn.suptitle(wrapped(title(frame)), x=0.01, ha="left", fontweight="bold")
    parts = list(drawn.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).flat)
    if spans:
        _draw_timelines(parts[0], pen, spans)
    _draw_bars(parts[-1], pen, frame, names)
    return drawn


def largest(frame: pd.DataFrame) -> pd.DataFrame:
    """The valid rows at the largest size, of the batch with most strategies, in one dtype."""
    frame = frame[gates.shown(frame)]
    for name in ("size", "context_length", "batch", "ranks", "dtype"):
        if len(frame):
            known = in_order(name, frame[name])
            count = {value: len(having(frame, **{name: value})) for value in known}
            most = max(reversed(known), key=count.__getitem__) if name == "batch" else known[-1]
            frame = having(frame, **{name: most})
    return frame


def spans_of(evidence: MachineEvidence, frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Strategy -> intervals of its timeline in the cell of the figure."""
    if frame.empty:
        return {}
    lines = rows.ledger(evidence, "timeline")
    lines = having(lines, **{name: frame[name].iloc[0] for name in rows.CELL})
    found = {name: having(lines, implementation=name) for name in TIMELINES}
    return {name: spans for name, spans in found.items() if len(spans)}


def _draw_timelines(part, pen: Pen, spans: dict[str, pd.DataFrame]) -> None:
    axes = part.subplots(len(spans), 1, squeeze=False, sharex=True)[:, 0]
    for axis, (name, intervals) in zip(axes, spans.items(), strict=True):
        _lanes(axis, pen, intervals)
        axis.set_title(implementation_words(name))
    axes[-1].set_xlabel("ms from the beginning of the step")
    axes[0].set_xlim(0, max(one["ends_ms"].max() for one in spans.values()))


def _lanes(axis: Axes, pen: Pen, intervals: pd.DataFrame) -> None:
    for place, (lane, look) in enumerate(LANES.items()):
        of_lane = having(intervals, lane=lane)
        lengths = of_lane["ends_ms"] - of_lane["starts_ms"]
        ranges = list(zip(of_lane["starts_ms"], lengths, strict=True))
        axis.broken_barh(ranges, (place - LANE / 2, LANE), **pen.filled(*look))
    axis.set_yticks(range(len(LANES)), list(LANES))
    axis.set_ylim(-0.5, len(LANES) - 0.5)
    axis.grid(False, axis="y")


def _draw_bars(part, pen: Pen, frame: pd.DataFrame, names: list[str]) -> None:
    axis = part.subplots()
    place = frame["implementation"].map(names.index)
    rest = frame["step_ms"] - frame["exposed_ms"]
    axis.barh(place, rest, BAR, label=REST, **pen.filled("grey", "///"))
    axis.barh(place, frame["exposed_ms"], BAR, left=rest, label=EXPOSED, **pen.filled("orange"))
    known = rows.decided(frame).index
    for at, (index, row) in zip(place, frame.iterrows(), strict=True):
        step, hidden = row["step_ms"], row["hidden_share"]
        words = "" if pd.isna(hidden) else f", {percent(hidden, 0)} hidden"
        words = words if index in known else ", hidden: not decided"
        number_at_end(axis, step, at, f"{significant(step)} ms{words}")
    axis.set_yticks(range(len(names)), [implementation_words(name) for name in names])
    axis.set_xlim(0, ROOM * frame["step_ms"].max())
    axis.set_xlabel("step under the profiler (ms)")
    axis.grid(False, axis="y")
    legend_below(part, [axis])


def title(frame: pd.DataFrame) -> str:
    """The cell, and the strategy that hides most of its communication, if that is decided."""
    first = frame.iloc[0]
    where = f"{first['size']}, batch {first['batch']:g}, on {first['ranks']:g} ranks"
    shares = rows.decided(frame).set_index("implementation")["hidden_share"].dropna()
    if shares.empty:
        return f"Train steps of {where}"
    name = shares.idxmax()
    hidden = percent(shares[name], 0)
    return f"{where}: {hidden} of communication is hidden ({implementation_words(name)})"
