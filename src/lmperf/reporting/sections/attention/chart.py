"""The interactive figure of plain attention."""

from __future__ import annotations

from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.charts import Spec, line_chart, points
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.rounds import median_intervals
from lmperf.reporting.sections.attention.figure import quantities_of, title, words_of
from lmperf.reporting.sections.attention.tables import usual


def charts(evidence: MachineEvidence) -> list[Spec]:
    """Times of the phases and the peak memory of the backward against the length."""
    frame = usual(evidence)
    quantities = [] if frame is None else quantities_of(frame)
    if not quantities:
        return []
    records, shown = [], frame[gates.shown(frame)]
    for phase, column in quantities:
        rows = having(shown, phase=phase).dropna(subset=[column]).sort_values("seq_len")
        unknown = [float("nan")] * len(rows)
        ends = median_intervals(rows) if column == "median_ms" else (unknown, unknown)
        unit = "ms" if column == "median_ms" else "MiB"
        records += points(rows, "seq_len", column, ends, words_of(phase, column), unit)
    names = in_order("implementation", shown["implementation"])
    axes = ("length", "")
    return [line_chart(title(frame), records, names, axes, log=True, shared=False)]
