"""The table that every benchmark has without a line of code: its cells by phase."""

from __future__ import annotations

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.side_by_side import Beside, side_by_side
from lmperf.reporting.tables import (
    STEPS,
    Lines,
    kernel_note,
    kernel_times,
    status_words,
    step_times,
)


def measurements(evidence: MachineEvidence, stem: str, most: int | None = None) -> Lines | None:
    """Axes and implementation down, phases across: the times in ms, or the status in words.

    None where there is nothing, or there are more lines than ``most``.
    """
    frame = evidence.frame(stem)
    if frame is None:
        return None
    timed = frame["median_ms"].notna().any()
    steps = isinstance(load(stem), Timed) and load(stem).clock == "step"
    times, note = (step_times, STEPS) if steps else (kernel_times, kernel_note(frame))
    cells = times if timed else status_words
    columns = [
        Beside(phase_words(phase) + (" (ms)" if timed else ""), cells(having(frame, phase=phase)))
        for phase in in_order("phase", frame["phase"])
    ]
    words = frame.assign(implementation=frame["implementation"].map(implementation_words))
    cell = [*axes(frame), "implementation"]
    table = side_by_side(load(stem).title, words, cell, columns, note if timed else "")
    return None if most and table and len(table.frame) > most else table
