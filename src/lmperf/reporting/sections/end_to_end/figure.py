"""The end-to-end figure: speed-ups of train steps over eager float32, as bars by size."""

from __future__ import annotations

from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels
from lmperf.reporting.numbers import ratio
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.speedup import every
from lmperf.statistics import FASTER, UNRESOLVED

PANELS = 2
HEIGHT = 4.0
GROUP = 0.84
# Only hatches made of lines: in SVG, a hatch of dots takes a hundred times the bytes.
HATCHES = ("", "//", "--", "xx", "\\\\", "||", "++", "/", "-")
COLOURS = ("blue", "mustard", "green", "orange", "pink", "violet", "grey")


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw one panel per context, as many as show every way (implementation and dtype) once.

    There are at most ``PANELS``; None without a speed-up.
    """
    frame = evidence.frame(ways.STEM)
    rows = _speedups(evidence, frame) if frame is not None else pd.DataFrame()
    if rows.empty:
        return None
    contexts = _contexts(rows)
    rows = having(rows, context_length=contexts)
    looks = zip(rows["way"].unique(), cycle(COLOURS), cycle(HATCHES), strict=False)
    bars = {name: pen.filled(colour, hatch) for name, colour, hatch in looks}
    drawn, axes = panels(_title(rows), len(contexts), HEIGHT, sharey=True)
    for axis, context in zip(axes, contexts, strict=True):
        steps = having(frame, context_length=context, phase=ways.STEP)
        _panel(axis, pen, having(rows, context_length=context), steps, bars)
        axis.set_title(f"context {context:g}")
    axes[0].set_ylabel("over eager float32")
    legend_below(drawn, axes)
    return drawn


def _speedups(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """Train steps with their speed-up over eager float32; ``way``: implementation, dtype in words.

    Steps with bf16 weights, whose loss differs, are left out.
    At a context, a way that was timed for fewer than half of the sizes is left out.
    """
    others = [way for way in ways.of(frame) if way.dtype != ways.BF16_WEIGHTS and way != ways.BASE]
    pairs = [(way.series, ways.BASE.series) for way in others]
    found = [having(every(evidence, ways.STEM, *pair), phase=ways.STEP) for pair in pairs]
    found = [rows.assign(way=way.words) for rows, way in zip(found, others, strict=True)]
    if not found:
        return pd.DataFrame()
    rows = pd.concat(found).drop_duplicates(["way", "size", "context_length"], keep="last")
    sizes = rows.groupby("context_length")["size"].transform("nunique")
    sizes_of_way = rows.groupby(["context_length", "way"])["size"].transform("nunique")
    return rows[2 * sizes_of_way >= sizes]


def _contexts(rows: pd.DataFrame) -> list[int]:
    """The contexts to draw: the one with most bars, then one that shows ways missing there."""
    chosen: list[int] = []
    while len(chosen) < PANELS:
        lacking = rows[~rows["way"].isin(having(rows, context_length=chosen)["way"])]
        if lacking.empty:
            break
        chosen.append(int(lacking["context_length"].value_counts().sort_index().idxmax()))
    return sorted(chosen)


def _title(rows: pd.DataFrame) -> str:
    rows = rows[rows["holds"] & (rows["verdict"] != UNRESOLVED)]
    if rows.empty:
        return "Speed-up of a train step over eager float32"
    best = rows.loc[rows["ratio"].idxmax()]
    if best["verdict"] != FASTER:
        return "No train step is faster than in eager float32"
    which = f"{best['way']}, size {best['size']}, context {best['context_length']:g}"
    return f"A train step is up to {ratio(best['ratio'])} as fast as in eager float32 ({which})"


def _panel(axis: Axes, pen: Pen, rows: pd.DataFrame, steps: pd.DataFrame, bars: dict) -> None:
    """Draw speed-ups with their confidence intervals for every size that has more than the base."""
    base, ink = ways.BASE.rows(steps), pen.theme.ink
    sizes = in_order("size", steps.drop(base.index)["size"])
    labels = [size + _why(having(base, size=size)) for size in sizes]
    width = GROUP / rows["size"].value_counts().max()
    for place, size in enumerate(sizes):
        bars_here = having(rows, size=size)
        for number, row in enumerate(bars_here.itertuples()):
            x = place + (number - (len(bars_here) - 1) / 2) * width
            axis.bar(x, row.ratio, width, label=row.way, **bars[row.way])
            reach = [[row.ratio - row.low], [row.high - row.ratio]]
            axis.errorbar(x, row.ratio, reach, fmt="none", ecolor=ink, elinewidth=0.8, capsize=1.5)
    axis.axhline(1, color=ink, linewidth=0.8)
    axis.set_xticks(range(len(sizes)), labels)
    axis.set_xlim(-0.6, len(sizes) - 0.4)
    axis.grid(False, axis="x")


def _why(base: pd.DataFrame) -> str:
    """For a tick label: why eager float32 has no time to show at this size; empty if it has one."""
    if gates.shown(base).any():
        return ""
    red = gates.red(base).any()
    found = "absent" if base.empty else "withheld" if red else base["status"].iloc[0]
    return f"\nfloat32\n{'OOM' if found == 'oom' else found}"
