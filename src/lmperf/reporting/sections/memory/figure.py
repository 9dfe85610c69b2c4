"""The memory figure: tensors alive over a train step, and its peak with each rung of the ladder.

Above, the tensors of a step are stacked by category, a panel for each dtype. Below, the measured
peaks are split into weights with optimizer state and what a step adds, a panel for each size.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import (
    WIDTH,
    Pen,
    legend_below,
    number_at_end,
    wrapped,
)
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.sections.end_to_end import waterfall, ways
from lmperf.reporting.sections.end_to_end.figure import BAR, INCHES_A_RUNG, labels, lines_of
from lmperf.reporting.sections.memory.peaks import MIB_IN_GIB
from lmperf.reporting.sections.memory.timeline import levels, observed, spans

STEP = "train_step"
LOOKS = {
    "parameters": ("blue", ""),
    "optimizer": ("mustard", "///"),
    "inputs": ("grey", "||"),
    "gradients": ("orange", "\\\\\\"),
    "activations": ("green", "--"),
    "temporary": ("violet", "xxx"),
}
# A category that never reaches this share of the highest peak is not drawn.
LEAST_SHARE = 0.01
MOST_POINTS = 125
EDGE = 0.27
ROOM = 1.3  # above the highest peak, and at the end of the longest bar
INCHES_OF_CURVES, INCHES_AROUND_RUNGS, INCHES_OF_TITLE = 3.0, 1.2, 0.45
MOST_SIZES = 3
KEPT = "weights and optimizer state"
ADDED = "activations, gradients and all else at the peak"
# A weight and the two moments that AdamW keeps of it, in the dtype of the weight.
VALUES_A_PARAMETER = 3
CAST_TOO = {"activations": "activations, weights cast by autocast"}


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw the memory of a train step over time and by rung of the ladder.

    None with neither a recording nor the peaks of two rungs.
    """
    curves, rungs = curves_of(evidence), rungs_of(evidence)
    names = labels(evidence, rungs)
    heights = [
        *([INCHES_OF_CURVES] if curves else []),
        *([INCHES_AROUND_RUNGS + INCHES_A_RUNG * len(names)] if names else []),
    ]
    if not heights:
        return None
    size = (WIDTH, sum(heights) + INCHES_OF_TITLE)
    drawn = Figure(figsize=size, layout="constrained")
    drawn.suptitle(wrapped(title(curves, rungs)), x=0.01, ha="left", fontweight="bold")
    parts = list(drawn.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).flat)
    if curves:
        _draw_curves(parts[0], pen, curves)
    if names:
        _draw_rungs(parts[-1], pen, rungs, names)
    return drawn


def curves_of(evidence: MachineEvidence) -> dict[str, tuple[pd.DataFrame, list]]:
    """Dtype -> curve and phases of a train step of the largest recorded size."""
    curves, phases = (observed(evidence, table) for table in ("curve", "phase"))
    steps = having(curves, phase=STEP)
    if steps.empty:
        return {}
    first = having(steps, size=in_order("size", steps["size"])[-1]).iloc[0]
    cell = first[["size", "context_length", "batch", "phase"]]
    steps, phases = having(steps, **cell), having(phases, **cell)
    return {
        dtype: _from_its_start(having(steps, dtype=dtype), spans(having(phases, dtype=dtype)))
        for dtype in in_order("dtype", steps["dtype"])
    }


def rungs_of(evidence: MachineEvidence) -> pd.DataFrame:
    """The rungs of the waterfall with ``kept`` and ``peak`` in GiB; of at most MOST_SIZES sizes.

    ``kept``: weights and optimizer state, from the number of parameters. The memory measured before
    a step can have gradients as well, if other phases ran before, which the step then clears.
    A CUDA graph's pool counts as a part of the peak. Empty without the peaks of two rungs.
    """
    rows = waterfall.usual(evidence)
    if rows.empty:
        return pd.DataFrame({"size": [], "implementation": []})
    stored = VALUES_A_PARAMETER * rows["dtype"].map(lambda name: dtype_of(name).bytes)
    rows = rows.assign(peak=ways.peak(rows), kept=rows["parameters"] * stored / 2**30)
    known = rows[gates.shown(rows) & rows[["peak", "kept"]].notna().all(axis=1)]
    several = known.groupby("size")["implementation"].nunique() > 1
    sizes = in_order("size", several.index[several])
    if len(sizes) > MOST_SIZES:
        sizes = [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
    known = having(known, size=sizes)
    failed = rows[~gates.shown(rows) & rows["implementation"].isin(known["implementation"])]
    return pd.concat([known, having(failed, size=sizes)])


def _draw_curves(part, pen: Pen, curves: dict[str, tuple[pd.DataFrame, list]]) -> None:
    axes = part.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    top = max(levels(curve).sum(axis=1).max() for curve, _ in curves.values()) / MIB_IN_GIB
    words = words_of(curves)
    for axis, (dtype, (curve, parts)) in zip(axes, curves.items(), strict=True):
        _panel(axis, pen, curve, LEAST_SHARE * top, words)
        _mark(axis, pen, parts)
        axis.set_title(f"{cell_words(curve)}, {dtype_words(dtype)}")
    axes[0].set_ylim(0, ROOM * top)
    axes[0].set_ylabel("tensors (GiB)")
    legend_below(part, list(axes))


def words_of(dtypes: Iterable[str]) -> dict[str, str]:
    """Category of ``LOOKS`` -> its name in a figure of these dtypes.

    The forward casts weights under autocast, and the backward reads the copies: they count as
    activations.
    """
    cast = CAST_TOO if any(dtype_of(dtype).autocast for dtype in dtypes) else {}
    return {name: cast.get(name, name) for name in LOOKS}


def _draw_rungs(part, pen: Pen, rungs: pd.DataFrame, names: dict[str, str]) -> None:
    """Draw a bar for each rung and size: weights and optimizer, and what the step adds."""
    sizes = in_order("size", rungs["size"])
    axes = part.subplots(1, len(sizes), squeeze=False, sharey=True)[0]
    batches = rungs["batch"].nunique() > 1
    for axis, size in zip(axes, sizes, strict=True):
        rows = having(rungs, size=size)
        lines_of(axis, rows, names)
        rows = rows[gates.shown(rows)]
        rows = rows.assign(place=rows["implementation"].map([*names].index))
        axis.barh(rows["place"], rows["kept"], BAR, label=KEPT, **pen.filled("grey", "///"))
        added = rows["peak"] - rows["kept"]
        axis.barh(rows["place"], added, BAR, left=rows["kept"], label=ADDED, **pen.filled("violet"))
        for place, peak in zip(rows["place"], rows["peak"], strict=True):
            number_at_end(axis, peak, place, significant(peak))
        axis.set_xlim(0, ROOM * rows["peak"].max())
        axis.set_xlabel("peak (GiB)")
        cell = cell_words(rows)
        axis.set_title(f"{cell}, batch {rows['batch'].iloc[0]:g}" if batches else cell)
    legend_below(part, list(axes))


def cell_words(rows: pd.DataFrame) -> str:
    return f"{rows['size'].iloc[0]}, context {rows['context_length'].iloc[0]:g}"


def title(curves: dict[str, tuple[pd.DataFrame, list]], rungs: pd.DataFrame) -> str:
    """The title: the largest category at the peak, and what rungs with float32 weights save."""
    said = [_largest(*next(iter(curves.items())))] if curves else []
    return "; ".join([*said, *_saved(rungs)]) or "Peak memory of a train step, by technique"


def _largest(dtype: str, recorded: tuple[pd.DataFrame, list]) -> str:
    curve = levels(recorded[0])
    peak = curve.loc[curve.sum(axis=1).idxmax()]
    share = percent(peak.max() / peak.sum(), 0)
    size = recorded[0]["size"].iloc[0]
    return f"{share} of the peak of {size} ({dtype_words(dtype)}) is {peak.idxmax()}"


def _saved(rungs: pd.DataFrame) -> list[str]:
    """What the ladder saves at the largest size whose lowest rung has a peak, if it saves."""
    kept = {name for name, rung in waterfall.BY_NAME.items() if waterfall.keeps_weights(rung)}
    rows = having(rungs, implementation=kept)
    rows = rows[rows["peak"].notna()] if len(rows) else rows
    for size in reversed(in_order("size", rows["size"])):
        peaks = having(rows, size=size).set_index("implementation")["peak"]
        first, least = peaks.get(waterfall.ladder.BASE.name), peaks.min()
        if first is not None and least < first:
            rung = implementation_words(peaks.idxmin())
            ends = f"{significant(first)} to {significant(least)} GiB"
            return [f"the ladder up to {rung} takes {size} from {ends}"]
    return []


def _from_its_start(curve: pd.DataFrame, parts: list) -> tuple[pd.DataFrame, list]:
    """The curve and its phases, moved so that the call starts at 0; at most MOST_POINTS points.

    Of each stretch of points, the one with the most memory is kept.
    """
    start = parts[0][1]
    curve = curve[curve["position"] >= start]
    stretch = (np.arange(len(curve)) + 1) // -(-len(curve) // MOST_POINTS)
    curve = curve.loc[levels(curve).sum(axis=1).groupby(stretch).idxmax()]
    moved = curve.assign(position=curve["position"] - start)
    return moved, [(name, begin - start, end - start) for name, begin, end in parts]


def _panel(axis: Axes, pen: Pen, curve: pd.DataFrame, least: float, words: dict) -> None:
    """Draw each category that ever reaches ``least`` GiB, and label the highest total."""
    at, by_category = curve["position"].to_numpy(float), levels(curve) / MIB_IN_GIB
    below = np.zeros(len(curve))
    for name, level in by_category.items():
        if level.max() >= least:
            above = below + level.to_numpy(float)
            axis.fill_between(at, below, above, label=words[name], **pen.filled(*LOOKS[name]))
            below = above
    total = by_category.sum(axis=1).to_numpy(float)
    top, inside = total.argmax(), (EDGE * at.max(), (1 - EDGE) * at.max())
    axis.annotate(
        f"peak {significant(total[top])} GiB",
        (np.clip(at[top], *inside), total[top]),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        bbox={"facecolor": pen.theme.background, "edgecolor": "none", "pad": 1},
    )


def _mark(axis: Axes, pen: Pen, parts: list[tuple[str, float, float]]) -> None:
    """Name the phases of the call, with a dotted line at the start of each that allocates."""
    for name, start, stop in parts:
        if start > 0 and stop > start:
            axis.axvline(start, color=pen.theme.ink, linewidth=1, linestyle=":")
        if stop > start:
            place = axis.get_xaxis_transform()
            axis.text((start + stop) / 2, 0.97, name, transform=place, ha="center", va="top")
    axis.set_xlabel("allocations and releases (not time)")
    axis.set_xlim(0, parts[-1][2])
    axis.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
