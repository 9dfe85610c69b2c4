"""The table of the write-up: a train step of every size, each way of running it beside the rest."""

from __future__ import annotations

import pandas as pd

from lmperf.names import phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import rounded, significant
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.side_by_side import Beside, side_by_side
from lmperf.reporting.speedup import Series, speedup_cells
from lmperf.reporting.tables import Lines, medians, value_cells

NOTE = "Times: median; speed-ups: median of the ratios of the rounds, with its interval."
MIB_PER_GIB = 1024


def head(evidence: MachineEvidence) -> Lines | None:
    """One line a size at the usual context: the time of each way, and what the fastest reaches.

    A way that was measured at every size, but at another context alone, has its speed-up there.
    """
    frame = evidence.frame(ways.STEM)
    if frame is None or (steps := ways.usual_steps(evidence)).empty:
        return None
    here = sorted(ways.of(steps), key=lambda each: each != ways.BASE)
    parameters = (steps["parameters"].dropna() / 1e6).map(lambda value: significant(value, 4))
    columns = [Beside("parameters (M)", parameters)]
    columns += [Beside(f"{ways.words(each)} (ms)", medians(each.rows(steps))) for each in here]
    lines = [steps]
    for each in ways.of(frame):
        rows = None if each in here else _elsewhere(frame, steps, each)
        if rows is not None:
            columns.append(_speedup(evidence, each, rows))
            # A line is a size: what was measured at another context joins it.
            lines.append(rows.assign(context_length=steps["context_length"].iloc[0]))
    best, which = _best(evidence)
    caption = phase_words(ways.STEP).capitalize()
    return side_by_side(caption, pd.concat(lines), ways.CELL, [*columns, *best], f"{NOTE}{which}")


def _elsewhere(frame: pd.DataFrame, steps: pd.DataFrame, series: Series) -> pd.DataFrame | None:
    """The train steps of a way at its own usual context; None unless every size has one."""
    rows = having(series.rows(frame), phase=ways.STEP)
    rows = rows[rows["batch"] == rows["size"].map(steps.groupby("size")["batch"].first())]
    if set(rows["size"]) != set(steps["size"]):
        return None
    return having(rows, context_length=ways.usual_context(rows))


def _speedup(evidence: MachineEvidence, series: Series, rows: pd.DataFrame) -> Beside:
    """Over what it differs from in one thing: eager in its numerics, eager float32 of eager."""
    name, dtype = rows[["implementation", "dtype"]].iloc[0]
    base = ways.BASE if name == ways.EAGER else ways.way(ways.EAGER, dtype)
    cells = speedup_cells(evidence, ways.STEM, series, base)
    context = f"context {rows['context_length'].iloc[0]:g}"
    header = f"{ways.words(series)} over {ways.words(base)}, {context}"
    return Beside(header, cells[cells.index.isin(rows.index)])


def _best(evidence: MachineEvidence) -> tuple[list[Beside], str]:
    """Columns of the fastest way, and which it is: in the note where it is one for all sizes."""
    rows = ways.fastest(evidence)
    pairs = zip(rows["implementation"], rows["dtype"], strict=True)
    which = pd.Series([ways.words(ways.way(*pair)) for pair in pairs], rows.index, dtype=object)
    same = which.nunique() == 1
    columns = [
        *([] if same else [Beside("best", which)]),
        Beside("best (tokens/s)", value_cells(rows, rows["rate"], rounded)),
        Beside("its MFU (%)", value_cells(rows, 100 * rows["share"])),
        Beside("its peak (GiB)", value_cells(rows, rows["peak_mib"] / MIB_PER_GIB)),
    ]
    return columns, f" Best: {which.iloc[0]}." if same else ""
