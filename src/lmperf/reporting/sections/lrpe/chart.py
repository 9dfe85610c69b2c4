"""The interactive figure of md_lrpe_cosine."""

from __future__ import annotations

from lmperf.names import in_order, phase_words
from lmperf.reporting.charts import Spec, line_chart, points
from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.rounds import median_intervals
from lmperf.reporting.sections.lrpe.figure import selected, title


def charts(evidence: MachineEvidence) -> list[Spec]:
    """GB/s against the number of positions, a panel for each phase."""
    frame = selected(evidence)
    if frame is None:
        return []
    rows = in_reading_order(frame, first=["phase"]).drop_duplicates(
        ["phase", "implementation", "positions"], keep="last"
    )
    ends = [rows["gbps"] * rows["median_ms"] / ms for ms in median_intervals(rows)[::-1]]
    records = points(rows, "positions", "gbps", ends, lambda row: phase_words(row["phase"]), "GB/s")
    names = in_order("implementation", rows["implementation"])
    return [line_chart(title(evidence, frame), records, names, ("positions", "GB/s"))]
