"""The figure of FlashAttention-2: TFLOP/s of each implementation, as bars or lines."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting import gates, marks
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, length, panels, powers_of_two
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.speedup import Series, speedups
from lmperf.statistics import FASTER

CLUSTER = 0.84
GROUP = ["d_head", "mask"]


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw TFLOP/s of forward and backward, a panel each; None without rows that may be shown.

    Bars show the longest length of the filled grid; without that grid, lines show one head.
    """
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return None
    shown = frame[gates.shown(frame) & frame["phase"].isin(kinds.PHASES) & frame["flops"].notna()]
    work, rows = kinds.main(kinds.with_mask(shown.assign(rate=achieved_tflops(shown))))
    if rows.empty:
        return None
    on_grid = kinds.filled(rows).any()
    rows = rows if on_grid else kinds.usual_width(having(rows, causal=rows["causal"].max()))
    end = rows["seq_len"].max()
    longest = having(rows, seq_len=end)
    where = f"{work.capitalize()}, {kinds.numerics(rows)}, length {length(end)}"
    phases = in_order("phase", rows["phase"])
    drawn, axes = panels(
        f"{where}: {_fastest(evidence, longest)}", len(phases), height=3.7, sharey=True
    )
    for axis, phase in zip(axes, phases, strict=True):
        if on_grid:
            _bars(axis, pen, longest, phase)
        else:
            _lines(axis, pen, rows, phase)
        axis.set_title(phase_words(phase))
    # Set the limit after all panels are drawn: they share the axis.
    axes[0].set_ylim(bottom=0)
    if on_grid and (ceiling := matmul_ceiling(evidence, kinds.HALF)):
        _ceiling(axes, pen, ceiling)
    axes[0].set_ylabel("TFLOP/s")
    legend_below(drawn, axes)
    return drawn


def _bars(axis: Axes, pen: Pen, rows: pd.DataFrame, phase: str) -> None:
    groups = list(rows[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False))
    names = in_order("implementation", rows["implementation"])
    width = CLUSTER / len(names)
    for place, name in enumerate(names):
        bars = having(rows, implementation=name, phase=phase).drop_duplicates(GROUP)
        left = np.arange(len(groups)) - CLUSTER / 2 + (place + 0.5) * width
        rates = bars.set_index(GROUP)["rate"].reindex(map(tuple, groups)).to_numpy()
        axis.bar(left, rates, width, label=implementation_words(name), **pen.bar(name, names))
    axis.set_xticks(range(len(groups)), [f"d {group[0]}\n{group[1]}" for group in groups])
    axis.grid(False, axis="x")


def _ceiling(axes: list[Axes], pen: Pen, ceiling: float) -> None:
    axes[0].set_ylim(top=1.14 * max(ceiling, axes[0].get_ylim()[1] / 1.05))
    look = {"color": pen.colour("grey")}
    at = {"xy": (0.01, ceiling), "xycoords": ("axes fraction", "data"), "fontsize": 9}
    words = f"matmul ceiling, {significant(ceiling)}"
    for axis in axes:
        axis.axhline(ceiling, **look, linestyle="--", linewidth=1.2)
        axis.annotate(words, **at, **look, xytext=(0, 3), textcoords="offset points")


def _lines(axis: Axes, pen: Pen, rows: pd.DataFrame, phase: str) -> None:
    names = in_order("implementation", rows["implementation"])
    lengths = sorted(set(rows["seq_len"]))
    for name in names:
        line = having(rows, implementation=name, phase=phase).drop_duplicates("seq_len")
        rates = line.set_index("seq_len")["rate"].reindex(lengths)
        axis.plot(lengths, rates, label=implementation_words(name), **pen.line(name, names))
    powers_of_two(axis, lengths)
    axis.set_xlabel("length")


def _fastest(evidence: MachineEvidence, rows: pd.DataFrame) -> str:
    """In how many groups each is fastest: ``SDPA cuDNN fastest in 5 of 8, Triton in 2``.

    A group counts as unresolved if its fastest row is not faster than every other row, or if a time
    in it may not hold (``marks.doubtful``).
    """
    group = ["phase", *GROUP]
    doubtful = marks.doubtful(rows, kinds.STEM).groupby([rows[name] for name in group]).any()
    best = rows.loc[rows.groupby(group)["rate"].idxmax(), ["implementation", *group]]
    resolved = best[~best.index.isin(_matched(evidence, rows))].set_index(group)["implementation"]
    resolved = resolved[~doubtful.reindex(resolved.index)].map(implementation_words)
    wins = resolved.value_counts()
    if not len(wins):
        return "the fastest is unresolved"
    first, *rest = sorted(wins.index, key=lambda name: (-wins[name], name))
    if wins[first] == len(best):
        return f"{first} is the fastest"
    others = [f"{name} in {wins[name]}" for name in rest]
    others += [f"{len(best) - len(resolved)} unresolved"] if len(resolved) < len(best) else []
    return ", ".join([f"{first} fastest in {wins[first]} of {len(best)}", *others])


def _matched(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.Index:
    """Labels of the rows that lack the verdict "faster" over at least one row of their group."""
    pairs = itertools.permutations(in_order("implementation", rows["implementation"]), 2)
    series = [[Series.of(implementation=name) for name in pair] for pair in pairs]
    found = [speedups(evidence, kinds.STEM, *pair)["verdict"] for pair in series]
    return pd.Index([row for part in found for row in part.index[part != FASTER]])
