"""Rates by backend on the filled grid, with the ceiling; where there is none, against length."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels, powers_of_two
from lmperf.reporting.numbers import Count, significant
from lmperf.reporting.sections.flash_attention import kinds

CLUSTER = 0.84
GROUP = ["d_head", "mask"]


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """TFLOP/s of forward and backward: bars at the longest filled length, else lines by length."""
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return None
    shown = frame[gates.shown(frame) & frame["phase"].isin(kinds.PHASES) & frame["flops"].notna()]
    shown = kinds.with_mask(shown.assign(rate=achieved_tflops(shown)))
    grid = having(shown[kinds.filled(shown)], dtype=kinds.HALF)
    rows = shown[kinds.single(shown)] if grid.empty else grid
    if rows.empty:
        return None
    dtype, kernel = in_order("dtype", rows["dtype"])[0], kinds.kernel_of(rows)
    if grid.empty:
        rows = kinds.usual_width(having(rows, dtype=dtype, causal=rows["causal"].max()))
    longest = having(rows, seq_len=rows["seq_len"].max())
    what = "One head" if grid.empty else "Filled grid"
    length = f"{longest['seq_len'].iloc[0]:,}"
    title = f"{what}, {kinds.numerics_words(dtype, kernel)}, length {length}: {_fastest(longest)}"
    phases = in_order("phase", rows["phase"])
    drawn, axes = panels(title, len(phases), height=3.7, sharey=True)
    for axis, phase in zip(axes, phases, strict=True):
        if grid.empty:
            _lines(axis, pen, rows, phase)
        else:
            _bars(axis, pen, longest, phase)
            _ceiling(axis, pen, matmul_ceiling(evidence, dtype))
        axis.set_ylim(bottom=0)
        axis.set_title(phase_words(phase))
    axes[0].set_ylabel("TFLOP/s")
    legend_below(drawn, axes)
    return drawn


def _bars(axis: Axes, pen: Pen, rows: pd.DataFrame, phase: str) -> None:
    groups = list(rows[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False))
    names = in_order("implementation", rows["implementation"])
    width = CLUSTER / len(names)
    for place, name in enumerate(names):
        own = having(rows, implementation=name, phase=phase).drop_duplicates(GROUP)
        left = np.arange(len(groups)) - CLUSTER / 2 + (place + 0.5) * width
        rates = own.set_index(GROUP)["rate"].reindex(map(tuple, groups)).to_numpy()
        axis.bar(left, rates, width, label=implementation_words(name), **pen.bar(name, names))
    axis.set_xticks(range(len(groups)), [f"d {group[0]}\n{group[1]}" for group in groups])
    axis.grid(False, axis="x")


def _ceiling(axis: Axes, pen: Pen, ceiling: float | None) -> None:
    if ceiling is None:
        return
    grey = pen.colour("grey")
    axis.axhline(ceiling, color=grey, linestyle="--", linewidth=1.2)
    axis.set_ylim(top=1.14 * max(ceiling, axis.get_ylim()[1] / 1.05))
    at = {"xy": (0.01, ceiling), "xycoords": ("axes fraction", "data"), "fontsize": 9}
    words = f"matmul ceiling, {significant(ceiling)}"
    axis.annotate(words, **at, xytext=(0, 3), textcoords="offset points", color=grey)


def _lines(axis: Axes, pen: Pen, rows: pd.DataFrame, phase: str) -> None:
    names, lengths = (
        in_order("implementation", rows["implementation"]),
        sorted(set(rows["seq_len"])),
    )
    for name in names:
        own = having(rows, implementation=name, phase=phase).drop_duplicates("seq_len")
        rates = own.set_index("seq_len")["rate"].reindex(lengths)
        axis.plot(lengths, rates, label=implementation_words(name), **pen.line(name, names))
    powers_of_two(axis, lengths)
    axis.set_xlabel("length")


def _fastest(rows: pd.DataFrame) -> str:
    """``SDPA cuDNN fastest in 6 of 8 cells, Triton in 2``."""
    best = rows.loc[rows.groupby(["phase", *GROUP])["rate"].idxmax(), "implementation"]
    wins = best.map(implementation_words).value_counts()
    first, *rest = sorted(wins.index, key=lambda name: (-wins[name], name))
    others = "".join(f", {name} in {wins[name]}" for name in rest)
    return f"{first} fastest in {Count(int(wins[first]), len(best))} cells{others}"
