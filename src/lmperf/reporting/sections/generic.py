"""The table that every benchmark has without a line of code: its cells by phase."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.reporting.numbers import implementation_words, phase_words
from lmperf.reporting.tables import markdown, status_words, timing_cells, wide


def measurements(evidence: MachineEvidence, stem: str) -> str:
    """Axes and implementation down, phases across: mean ± std in ms, or the status in words."""
    frame = evidence.frame(stem)
    if frame is None:
        return ""
    timed = frame["mean_ms"].notna().any()
    cells = timing_cells(frame) if timed else status_words(frame)
    rows = [*axes(frame), "implementation"]
    table = with_words(wide(frame, cells, rows, "phase"))
    unit = " (ms)" if timed else ""
    table = table.rename(columns=lambda name: _phase_header(name, frame, unit))
    return markdown(table, f"Measurements of {stem.replace('_', ' ')}, mean ± std")


def _phase_header(name: str, frame: pd.DataFrame, unit: str) -> str:
    return phase_words(name) + unit if name in set(frame["phase"]) else name


def with_words(table: pd.DataFrame) -> pd.DataFrame:
    """Implementations in words."""
    return table.assign(implementation=table["implementation"].map(implementation_words))
