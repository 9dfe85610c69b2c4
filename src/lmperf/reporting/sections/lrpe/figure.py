"""Bandwidth against the number of positions: one panel per direction, the copy as a line."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.figures import Pen, legend_below, panels, powers_of_two
from lmperf.reporting.numbers import Spread, percent, ranged
from lmperf.reporting.sections.lrpe.rows import COPY, STEM, main_dtype, measured_leads, shaped
from lmperf.reporting.speedup import Series, speedups


def figure(evidence: MachineEvidence, pen: Pen) -> Figure | None:
    """GB/s of the bytes that have to move: positions along the fewest axes, fewest extra tokens.

    None for a single number of positions, which makes no line.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    frame = shaped(frame[gates.shown(frame) & frame["bytes"].notna()])
    for name in ("axes", "extra_tokens"):
        frame = frame[frame[name] == frame[name].min()]
    frame = having(frame, dtype=main_dtype(frame)) if len(frame) else frame
    if frame["positions"].nunique() < 2 or not measured_leads(frame):
        return None
    phases = in_order("phase", frame["phase"])
    drawn, axes = panels(_title(evidence, frame), len(phases), sharey=True)
    for axis, phase in zip(axes, phases, strict=True):
        _panel(axis, pen, having(frame, phase=phase))
        axis.set_title(phase_words(phase))
        axis.set_xlabel("positions")
    axes[0].set_ylabel("GB/s")
    legend_below(drawn, axes)
    return drawn


def _rates(frame: pd.DataFrame, name: str) -> pd.Series:
    """Positions -> GB/s of an implementation, by its medians."""
    rows = having(frame, implementation=name).drop_duplicates("positions", keep="last")
    rows = rows.set_index("positions").sort_index()
    return rows["bytes"] / rows["median_ms"] / 1e6


def _title(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    """Which share of the copy's speed the lead reaches at the longer half of the positions."""
    lead = measured_leads(frame)[0]
    series = (Series.of(implementation=name) for name in (lead, COPY))
    ratios = speedups(evidence, STEM, *series)["ratio"]
    long = frame[frame["positions"] >= frame["positions"].drop_duplicates().median()]
    rows = long[long.index.isin(ratios.index)]
    what = f"{implementation_words(lead)}, {dtype_words(main_dtype(frame))}"
    if rows.empty:
        return f"Bandwidth of md_lrpe_cosine, {what}"
    shares = {p: ratios[having(rows, phase=p).index] for p in in_order("phase", rows["phase"])}
    words = [
        f"{phase_words(phase)} {ranged(Spread.of(share), lambda v: percent(v, 0))}"
        for phase, share in shares.items()
    ]
    least = f"from {rows['positions'].min():,} positions on"
    return f"md_lrpe_cosine {least} ({what}), share of a copy's speed: {', '.join(words)}"


def _panel(axis, pen: Pen, frame: pd.DataFrame) -> None:
    names = in_order("implementation", frame["implementation"])
    for name in names:
        rates = _rates(frame, name)
        label = implementation_words(name)
        axis.plot(rates.index, rates, label=label, **pen.line(name, names))
    powers_of_two(axis, frame["positions"])
    axis.set_ylim(bottom=0)
