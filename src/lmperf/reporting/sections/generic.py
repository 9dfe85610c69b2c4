"""The table of a section without a module: every cell of its benchmark, by phase."""

from __future__ import annotations

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.side_by_side import side_by_side, text, time
from lmperf.reporting.tables import (
    kernel_note,
    kernel_times,
    status_cells,
    step_note,
    step_times,
)
from lmperf.results import Table


def measurements(evidence: MachineEvidence, stem: str, most: int | None = None) -> Table | None:
    """A table with a line per cell and implementation, and a column per phase.

    It holds times in ms, or the status if nothing was timed. None without rows, or if it had more
    than ``most`` lines.
    """
    frame = evidence.frame(stem)
    if frame is None:
        return None
    timed = frame["median_ms"].notna().any()
    steps = isinstance(load(stem), Timed) and load(stem).clock == "step"
    times, note = (
        (step_times, step_note(stem, frame)) if steps else (kernel_times, kernel_note(frame))
    )
    columns = []
    for phase in in_order("phase", frame["phase"]):
        rows, words = having(frame, phase=phase), phase_words(phase)
        if timed:
            columns.append(time(words, times(rows), phase, second="median" if steps else ""))
        else:
            columns.append(text(words, status_cells(rows), phase))
    words = frame.assign(implementation=frame["implementation"].map(implementation_words))
    cell = [*axes(frame), "implementation"]
    table = side_by_side(load(stem).title, words, cell, columns, note if timed else "")
    return None if most and table and table.length > most else table
