"""The interactive figure of FlashAttention-2."""

from __future__ import annotations

from lmperf.names import in_order, phase_words
from lmperf.reporting.charts import Spec, line_chart, points
from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.rounds import median_intervals
from lmperf.reporting.sections.flash_attention.figure import GROUP, ceilings_of, selected, title


def charts(evidence: MachineEvidence) -> list[Spec]:
    """TFLOP/s against the length, a panel for each phase, d_head and mask."""
    found = selected(evidence)
    if found is None:
        return []
    work, rows, _ = found
    rows = in_reading_order(rows, first=["phase", *GROUP])
    ends = [rows["flops"] / ms / 1e9 for ms in median_intervals(rows)[::-1]]
    records = points(rows, "seq_len", "rate", ends, _panel, "TFLOP/s")
    names = in_order("implementation", rows["implementation"])
    ceilings = ceilings_of(evidence, rows["dtype"].iloc[0])
    axes = ("length", "TFLOP/s")
    return [line_chart(title(evidence, work, rows), records, names, axes, ceilings)]


def _panel(row: dict) -> str:
    return f"{phase_words(row['phase'])}, d {row['d_head']:g}, {row['mask']}"
