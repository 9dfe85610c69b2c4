"""The figure of md_lrpe_cosine: GB/s of each implementation and of a copy, by positions."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.figures import Pen, legend_below, panels, powers_of_two
from lmperf.reporting.numbers import Spread, percent, ranged
from lmperf.reporting.sections.lrpe import shapes


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """Draw GB/s against the number of positions, a panel per phase, a line per implementation.

    Shows shapes with the fewest axes and the fewest extra tokens. None if they all have the same
    number of positions.
    """
    frame = shapes.rows_of(evidence)
    if frame is None or not shapes.leads(frame):
        return None
    frame = having(frame[gates.shown(frame)], dtype=shapes.numerics(frame))
    for name in ("axes", "extra_tokens"):
        frame = frame[frame[name] == frame[name].min()]
    if frame["positions"].nunique() < 2 or not shapes.leads(frame):
        return None
    names = in_order("implementation", frame["implementation"])
    drawn, axes = panels(_title(evidence, frame), frame["phase"].nunique(), sharey=True)
    for axis, (phase, rows) in zip(axes, groups(frame, "phase"), strict=True):
        for name, line in groups(rows, "implementation"):
            line = line.drop_duplicates("positions", keep="last").sort_values("positions")
            label = implementation_words(name)
            axis.plot(line["positions"], line["gbps"], label=label, **pen.line(name, names))
        powers_of_two(axis, rows["positions"])
        axis.set_title(phase_words(phase))
        axis.set_xlabel("positions")
    # Set the limit after all panels are drawn: they share the axis.
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("GB/s")
    legend_below(drawn, axes)
    return drawn


def _title(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    """The title: the share of the copy's speed that the lead implementation reaches."""
    lead = shapes.leads(frame)[0]
    what = f"{implementation_words(lead)}, {dtype_words(shapes.numerics(frame))}"
    rows = frame[frame["large"]].join(shapes.over(evidence, lead, "copy"), how="inner")
    if rows.empty:
        return f"Bandwidth of md_lrpe_cosine, {what}"
    shares = [
        f"{phase_words(phase)} {ranged(Spread.of(part['ratio']), percent)}"
        for phase, part in groups(rows, "phase")
    ]
    least = shapes.large_words(frame)
    return f"md_lrpe_cosine {least} ({what}), share of a copy's speed: {', '.join(shares)}"
