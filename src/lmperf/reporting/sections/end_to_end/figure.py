"""The end-to-end figure: a waterfall of the ladder, time of a train step in ms, a panel a size."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, grid, legend_below, number_at_end, whiskers
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ladder import adjacent
from lmperf.reporting.sections.end_to_end.waterfall import (
    BY_NAME,
    keeps_weights,
    loss_changes,
    times,
    usual,
    with_float32_weights,
)
from lmperf.reporting.tables import status_words
from lmperf.statistics import FASTER, SLOWER

MOST_COLUMNS = 3
INCHES_A_RUNG, INCHES_A_ROW, INCHES_AROUND = 0.31, 0.75, 0.9
BAR = 0.72
OUTLINE = 0.88  # taller than a bar, so that it is visible where it lies over one
ROOM = 1.4  # of the longest bar, for the number at its end
STEP, SAVED, SLOWER_BY = "train step", "saved", "slower"
UNCLEAR = "same, unclear or not compared"


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw the ladder of each size: a bar for each rung, and what the rung saved or lost.

    None if no size has the times of two rungs.
    """
    rows = usual(evidence)
    sizes = in_order("size", rows["size"])
    if not sizes:
        return None
    words = labels(evidence, rows)
    rungs = [*words]
    lines = -(-len(sizes) // MOST_COLUMNS)
    columns = -(-len(sizes) // lines)
    height = INCHES_AROUND + lines * (INCHES_A_ROW + INCHES_A_RUNG * len(rungs))
    timed = {size: times(evidence, having(rows, size=size)) for size in sizes}
    heading = title(evidence, timed)
    drawn, axes = grid(heading, lines, columns, height, sharey=True)
    panels = list(axes.flat)
    for unused in panels[len(sizes) :]:
        unused.remove()
    batches = rows["batch"].nunique() > 1
    for axis, (size, steps) in zip(panels, timed.items(), strict=False):
        _panel(axis, pen, steps, rungs, loss_changes(evidence, size))
        lines_of(axis, having(rows, size=size), words)
        axis.set_title(f"{size}, batch {steps['batch'].iloc[0]:g}" if batches else size)
        axis.set_xlabel(f"ms, {'sustained' if steps['lasting'].all() else 'burst'}")
    legend_below(drawn, panels[: len(sizes)])
    return drawn


def lines_of(axis: Axes, rows: pd.DataFrame, rungs: Mapping[str, str]) -> None:
    """Name a line for each rung; say why a rung of this size has no number.

    rows: the rows of the size, from ``usual``; rungs: ``labels``, from top to bottom.
    """
    words = status_words(rows).where(~gates.shown(rows), "")
    why = dict(zip(rows["implementation"], words, strict=True))
    for place, name in enumerate(rungs):
        if text := why.get(name, "not measured").partition(" (")[0]:
            number_at_end(axis, 0, place, text)
    axis.set_yticks(range(len(rungs)), rungs.values())
    axis.set_ylim(len(rungs) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def labels(evidence: MachineEvidence, rows: pd.DataFrame) -> dict[str, str]:
    """Each rung of these rows in words; after a plus if it adds to the line above.

    rows: from ``usual``; the words are broken after a comma.
    """
    present = set(rows["implementation"])
    adds = {rung.name for rung, _ in adjacent(evidence, rows) if rung.implementation != ways.EAGER}
    return {
        name: ("+ " if name in adds else "") + implementation_words(name).replace(", ", ",\n")
        for name in BY_NAME
        if name in present
    }


def _panel(axis: Axes, pen: Pen, steps: pd.DataFrame, rungs: list[str], losses: dict) -> None:
    """Draw the bars of one size with the time of a step, and the change in loss, at their ends."""
    ghost = {"facecolor": "none", "linewidth": 0.8}
    looks = {
        SAVED: {**ghost, "edgecolor": pen.colour("green"), "hatch": "////"},
        SLOWER_BY: {**ghost, "edgecolor": pen.colour("orange"), "hatch": "xxxx"},
        UNCLEAR: {**ghost, "edgecolor": pen.theme.ink, "linestyle": ":"},
    }
    steps = steps.assign(
        place=steps["implementation"].map(rungs.index), before=steps["before"].fillna(steps["ms"])
    )
    for step in steps.itertuples():
        least, most = sorted((step.ms, step.before))
        kind = SAVED if step.saves else SLOWER_BY if step.costs else UNCLEAR
        solid = step.ms if kind == UNCLEAR else least  # not to look like a saving if slower
        axis.barh(step.place, solid, BAR, label=STEP, **pen.filled("blue"))
        if least < most:
            tall = OUTLINE if kind == UNCLEAR else BAR
            axis.barh(step.place, most - least, tall, left=least, label=kind, **looks[kind])
        words = significant(step.ms) + _loss_words(step.implementation, losses)
        number_at_end(axis, max(most, step.high), step.place, words)
    ends = steps["low"], steps["high"]
    whiskers(axis, steps["place"], steps["ms"], ends, pen.theme.ink, across=True)
    axis.set_xlim(0, ROOM * steps[["ms", "before", "high"]].max().max())


def _loss_words(name: str, losses: dict[str, str]) -> str:
    """The change in loss that stands beside the time of a rung without float32 weights."""
    if keeps_weights(BY_NAME[name]):
        return ""
    return f" ({losses.get(name, 'loss not measured')})"


def title(evidence: MachineEvidence, timed: dict[str, pd.DataFrame]) -> str:
    """The title: the gain of the fastest rung with float32 weights, at the largest size with one.

    Without one, it states the context and, if all sizes have the same one, the batch.
    """
    for size, steps in reversed(timed.items()):
        fastest = with_float32_weights(evidence, steps)
        if len(fastest):
            row = fastest.iloc[0]
            ends = f"from {significant(steps['ms'].iloc[0])} to {significant(row['ms'])} ms"
            verb = {FASTER: "takes", SLOWER: "slows"}.get(row["verdict"], "hardly changes")
            rung = implementation_words(row["implementation"])
            return (
                f"With float32 weights, the ladder {verb} a train step {ends}"
                f" at its fastest rung, {rung} ({size}, {_cell_words(steps)})"
            )
    return f"Time of a train step, by technique ({_cell_words(pd.concat(timed.values()))})"


def _cell_words(steps: pd.DataFrame) -> str:
    batches = steps["batch"].unique()
    batch = f", batch {batches[0]:g}" if len(batches) == 1 else ""
    return f"context {steps['context_length'].iloc[0]:g}{batch}"
