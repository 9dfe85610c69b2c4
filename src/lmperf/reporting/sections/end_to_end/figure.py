"""The end-to-end figure: a waterfall of the ladder, time of a train step in ms, a panel a size."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lmperf.names import implementation_words, in_order, mark_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import (
    WIDTH,
    Pen,
    grid,
    legend_below,
    number_at_end,
    whiskers,
)
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
from lmperf.results import EMPTY, SIGNS
from lmperf.statistics import FASTER, SLOWER

MOST_COLUMNS = 3
INCHES_A_RUNG, INCHES_A_ROW, INCHES_AROUND = 0.31, 0.75, 0.9
BAR = 0.72
OUTLINE = 0.88  # taller than a bar, so that it is visible where it lies over one
ROOM = 1.4  # of the longest bar, for the number at its end
# Inches: names of the rungs; a character of a number at a bar's end; around such a number.
INCHES_OF_RUNGS, INCHES_A_CHARACTER, INCHES_AROUND_NUMBER = 1.8, 0.062, 0.1
STEP, MARKED, SAVED, SLOWER_BY = "train step", "train step, marked", "saved", "slower"
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
    marked = _marked_words(pd.concat(timed.values()))
    width = (WIDTH - INCHES_OF_RUNGS) / columns
    for axis, (size, steps) in zip(panels, timed.items(), strict=False):
        _panel(axis, pen, steps, rungs, loss_changes(evidence, size), marked, width)
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


def _marked_words(steps: pd.DataFrame) -> str:
    """For the legend: the signs of the marks for which a time may not hold, and what they mean."""
    found = in_order("marks", {mark for names in _doubts(steps) for mark in names})
    return f"{MARKED}: {', '.join(f'{SIGNS[mark]} {mark_words(mark)}' for mark in found)}"


def _doubts(steps: pd.DataFrame) -> list[list[str]]:
    """The marks with a sign of each step whose time may not hold; none for the other steps."""
    found = zip(marks.marks_of(steps), steps["doubtful"], strict=True)
    return [[name for name in names if name in SIGNS] if open_ else [] for names, open_ in found]


def _panel(
    axis: Axes,
    pen: Pen,
    steps: pd.DataFrame,
    rungs: list[str],
    losses: dict,
    marked: str,
    width: float,
) -> None:
    """Draw the bars of one size with the time of a step, and the change in loss, at their ends.

    marked: name of the bars whose time may not hold. width: of the panel in inches.
    """
    ghost = {"facecolor": "none", "linewidth": 0.8}
    looks = {
        SAVED: {**ghost, "edgecolor": pen.colour("green"), "hatch": "////"},
        SLOWER_BY: {**ghost, "edgecolor": pen.colour("orange"), "hatch": "xxxx"},
        UNCLEAR: {**ghost, "edgecolor": pen.theme.ink, "linestyle": ":"},
    }
    bars = {
        False: {"label": STEP, **pen.filled("blue")},
        True: {"label": marked, **pen.filled("grey", "....")},
    }
    steps = steps.assign(
        place=steps["implementation"].map(rungs.index),
        before=steps["before"].fillna(steps["ms"]),
        signs=["".join(SIGNS[name] for name in names) for names in _doubts(steps)],
    )
    longest = ROOM * steps[["ms", "before", "high"]].max().max()
    for step in steps.itertuples():
        least, most = sorted((step.ms, step.before))
        kind = SAVED if step.saves else SLOWER_BY if step.costs else UNCLEAR
        solid = step.ms if kind == UNCLEAR else least  # not to look like a saving if slower
        axis.barh(step.place, solid, BAR, **bars[step.doubtful])
        if least < most:
            tall = OUTLINE if kind == UNCLEAR else BAR
            axis.barh(step.place, most - least, tall, left=least, label=kind, **looks[kind])
        words = significant(step.ms) + step.signs + _loss_words(step.implementation, losses)
        end, text = max(most, step.high), INCHES_AROUND_NUMBER + INCHES_A_CHARACTER * len(words)
        number_at_end(axis, end, step.place, words)
        longest = max(longest, end / (1 - text / width))
    ends = steps["low"], steps["high"]
    whiskers(axis, steps["place"], steps["ms"], ends, pen.theme.ink, across=True)
    axis.set_xlim(0, longest)


def _loss_words(name: str, losses: dict[str, str]) -> str:
    """The change in loss that stands beside the time of a rung without float32 weights.

    It is a dash without a measured loss, as in tables: more words would not fit.
    """
    if keeps_weights(BY_NAME[name]):
        return ""
    return f" ({losses.get(name, f'loss {EMPTY}')})"


def title(evidence: MachineEvidence, timed: dict[str, pd.DataFrame]) -> str:
    """The title: the gain of the fastest rung with float32 weights, at the largest size with one.

    If another rung is marked, it may be faster: the title then names the rung and does not call it
    the fastest. Without one, it states the context and, if all sizes have the same one, the batch.
    """
    for size, steps in reversed(timed.items()):
        fastest = with_float32_weights(evidence, steps)
        if len(fastest):
            row = fastest.iloc[0]
            before, after = significant(steps["ms"].iloc[0]), significant(row["ms"])
            verb = {FASTER: "takes", SLOWER: "slows"}.get(row["verdict"], "hardly changes")
            rung = implementation_words(row["implementation"])
            ends = f"from {before} to {after} ms at its fastest rung, {rung}"
            if not row["alone"]:
                first = implementation_words(steps["implementation"].iloc[0])
                ends = f"from {before} ms ({first}) to {after} ms ({rung}), marked rungs aside"
            return (
                f"With float32 weights, the ladder {verb} a train step {ends}"
                f" ({size}, {_cell_words(steps)})"
            )
    return f"Time of a train step, by technique ({_cell_words(pd.concat(timed.values()))})"


def _cell_words(steps: pd.DataFrame) -> str:
    batches = steps["batch"].unique()
    batch = f", batch {batches[0]:g}" if len(batches) == 1 else ""
    return f"context {steps['context_length'].iloc[0]:g}{batch}"
