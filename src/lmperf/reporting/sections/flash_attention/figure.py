"""The figure of FlashAttention-2: TFLOP/s against the length, a panel for each d_head and mask."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting import gates, marks
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling, sheet_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import (
    SMALL_TEXT,
    TEXT_INCHES,
    Pen,
    apart,
    grid,
    legend_below,
    length,
    powers_of_two,
    whiskers,
)
from lmperf.reporting.numbers import significant
from lmperf.reporting.rounds import median_intervals
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.speedup import Series, speedups
from lmperf.statistics import FASTER, SAME

GROUP = ["d_head", "mask"]
LEAST_LENGTH = 512
MOST_COLUMNS = 4
INCHES_A_ROW, INCHES_AROUND = 1.75, 1.9
TOP = 1.04
MARGIN = 0.06  # left of the first length, as a share of the axis
NUMBER_INCHES = 0.36  # width of a number at the end of a line
PANEL_INCHES = 6.4  # all panels of a row, without the labels of the y axis
LINES = {
    "peak matmul, single calls": (0, (5, 2)),
    "data sheet": (0, (1, 1)),
}


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw TFLOP/s of forward and backward, a row each; None without rows that may be shown.

    The rows are the filled grid's; without that grid, those of one head in one d_head.
    """
    found = selected(evidence)
    if found is None:
        return None
    work, rows, groups = found
    phases = in_order("phase", rows["phase"])
    # With a single d_head and mask, the phases stand side by side.
    beside = len(groups) == 1
    shape = (1, len(phases)) if beside else (len(phases), len(groups))
    height = INCHES_AROUND + INCHES_A_ROW * shape[0]
    drawn, axes = grid(title(evidence, work, rows), *shape, height, sharex=True, sharey=True)
    cells = list(itertools.product(phases, groups.itertuples(index=False)))
    ceilings = ceilings_of(evidence, rows["dtype"].iloc[0])
    top = TOP * max([rows["rate"].max(), *ceilings.values()])
    for axis, (phase, group) in zip(axes.flat, cells, strict=True):
        part = having(rows, phase=phase, **group._asdict())
        axis.set_ylim(0, top)
        _lines(axis, pen, rows, part, shape)
        _ceilings_drawn(axis, pen, ceilings)
        words = f"d {group[0]}, {group[1]}"
        axis.set_title(f"{phase_words(phase)}, {words}" if beside else words)
    for axis in axes[-1]:
        axis.set_xlabel("length")
    for axis, phase in zip(axes[:, 0], phases, strict=False):
        axis.set_ylabel("TFLOP/s" if beside else f"{phase_words(phase)} (TFLOP/s)")
    for axis in axes[1:].flat:
        axis.set_title("")
    legend_below(drawn, list(axes.flat))
    return drawn


def selected(evidence: MachineEvidence) -> tuple[str, pd.DataFrame, pd.DataFrame] | None:
    """The work that the figure is about, its rows with ``rate`` and ``mask``, and its panels.

    None without rows that may be shown.
    """
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return None
    shown = frame[gates.shown(frame) & frame["phase"].isin(kinds.PHASES) & frame["flops"].notna()]
    work, rows = kinds.main(kinds.with_mask(shown.assign(rate=achieved_tflops(shown))))
    if rows.empty:
        return None
    if not kinds.filled(rows).any():
        rows = kinds.usual_width(having(rows, causal=rows["causal"].max()))
    long = rows[rows["seq_len"] >= LEAST_LENGTH]
    rows = long if long["seq_len"].nunique() > 1 else rows
    groups = rows[GROUP].drop_duplicates().sort_values(GROUP).iloc[-MOST_COLUMNS:]
    rows = rows[pd.MultiIndex.from_frame(rows[GROUP]).isin(pd.MultiIndex.from_frame(groups))]
    return work, rows, groups


def title(evidence: MachineEvidence, work: str, rows: pd.DataFrame) -> str:
    """The title of the figure: what is fastest at the longest length, and of which work."""
    longest = rows["seq_len"].max()
    fastest = _fastest(evidence, having(rows, seq_len=longest))
    return f"{fastest} ({work}, {kinds.numerics(rows)}, length {length(longest)})"


def ceilings_of(evidence: MachineEvidence, dtype: str) -> dict[str, float]:
    """Name of a horizontal line -> TFLOP/s in the numerics of ``dtype``, where known.

    The points are single calls, so the matmul is timed in single calls as well: back to back, the
    device has a lower clock.
    """
    rates = matmul_ceiling(evidence, dtype), sheet_ceiling(evidence, dtype)
    return {name: rate for name, rate in zip(LINES, rates, strict=True) if rate}


def _ceilings_drawn(axis: Axes, pen: Pen, ceilings: dict[str, float]) -> None:
    for name, dash in LINES.items():
        if name in ceilings:
            label = f"{name}: {significant(ceilings[name])}"
            look = {"color": pen.colour("grey"), "linestyle": dash, "linewidth": 1.3, "zorder": 1}
            axis.axhline(ceilings[name], label=label, **look)


def _lines(axis: Axes, pen: Pen, rows: pd.DataFrame, part: pd.DataFrame, shape: tuple) -> None:
    """Draw a line for each implementation, with its rate at the longest length.

    Args:
        rows: all rows of the figure. part: those of the panel.
        shape: how many rows and columns of panels the figure has.
    """
    names = in_order("implementation", rows["implementation"])
    lengths = sorted(set(rows["seq_len"]))
    ends = []
    for name in names:
        line = having(part, implementation=name).drop_duplicates("seq_len").sort_values("seq_len")
        if line.empty:
            continue
        look = pen.line(name, names)
        axis.plot(line["seq_len"], line["rate"], label=implementation_words(name), **look)
        rates = (line["flops"] / ms / 1e9 for ms in median_intervals(line)[::-1])
        whiskers(axis, line["seq_len"], line["rate"], rates, look["color"])
        if line["seq_len"].iloc[-1] == lengths[-1]:
            ends.append((line["rate"].iloc[-1], look["color"]))
    powers_of_two(axis, lengths)
    # Room for the numbers on the right, in the units of a logarithmic axis.
    wide = NUMBER_INCHES * shape[1] / PANEL_INCHES
    octaves = max(np.log2(lengths[-1] / lengths[0]), 1.0) / (1 - wide - MARGIN)
    axis.set_xlim(lengths[0] / 2 ** (MARGIN * octaves), lengths[-1] * 2 ** (wide * octaves))
    least = TEXT_INCHES * axis.get_ylim()[1] / INCHES_A_ROW
    places = apart([rate for rate, _ in ends], least)
    box = {"facecolor": pen.theme.background, "edgecolor": "none", "pad": 0.5}
    at = {"textcoords": "offset points", "va": "center", "fontsize": SMALL_TEXT, "bbox": box}
    for place, (rate, colour) in zip(places, ends, strict=True):
        end = (lengths[-1], place)
        digits = 3 if rate >= 100 else 2
        axis.annotate(significant(rate, digits), end, (6, 0), color=colour, **at)


def _fastest(evidence: MachineEvidence, rows: pd.DataFrame) -> str:
    """In how many groups each is fastest: ``Triton is the fastest in 5 of 8 cases, flex in 2``.

    A group is not counted for its fastest row if that is not faster than every other row, or if a
    time in the group may not hold (``marks.doubtful``). It is on par if that row is the same as
    some and faster than all others.
    """
    group = ["phase", *GROUP]
    doubtful = marks.doubtful(rows, kinds.STEM).groupby([rows[name] for name in group]).any()
    best = rows.loc[rows.groupby(group)["rate"].idxmax(), ["implementation", *group]]
    best = best[~doubtful.reindex(pd.MultiIndex.from_frame(best[group])).to_numpy()]
    cases = rows[group].drop_duplicates().shape[0]
    wins = best[~best.index.isin(_without(evidence, rows, FASTER))]
    level = len(best[~best.index.isin(_without(evidence, rows, FASTER, SAME))]) - len(wins)
    wins = wins["implementation"].map(implementation_words).value_counts()
    if not len(wins):
        if level == cases:
            return "The fastest implementations are on par"
        return "Which implementation is the fastest is not resolved"
    first, *rest = sorted(wins.index, key=lambda name: (-wins[name], name))
    if wins[first] == cases:
        return f"{first} is the fastest"
    others = [f"{name} in {wins[name]}" for name in rest]
    left = {"on par": level, "unresolved or marked": cases - wins.sum() - level}
    others += [f"{number} {words}" for words, number in left.items() if number]
    return ", ".join([f"{first} is the fastest in {wins[first]} of {cases} cases", *others])


def _without(evidence: MachineEvidence, rows: pd.DataFrame, *verdicts: str) -> pd.Index:
    """Labels of the rows with another verdict than these over at least one row of their group."""
    pairs = itertools.permutations(in_order("implementation", rows["implementation"]), 2)
    series = [[Series.of(implementation=name) for name in pair] for pair in pairs]
    found = [speedups(evidence, kinds.STEM, *pair)["verdict"] for pair in series]
    return pd.Index([row for part in found for row in part.index[~part.isin(verdicts)]])
