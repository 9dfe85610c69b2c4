"""Y1: the measured peak beside the predicted one, by phase and numerics."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import percent, signed_percent, significant
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.tables import Lines, Table, status_words, value_cells

STEM = "memory"
CELL = ["size", "context_length", "batch"]
CONTEXT = 512
SINGLE, HALF = "float32", "autocast_bfloat16"
COMPONENTS = ("parameters", "gradients", "optimizer", "activations")
MIB_IN_GIB = 1024


def head(evidence: MachineEvidence) -> Lines | None:
    """One line a size, near the usual context: peaks in GiB, and what the largest is made of."""
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    frame = at_usual_context(frame)
    columns = []
    for phase in in_order("phase", frame["phase"]):
        for dtype in in_order("dtype", frame["dtype"]):
            header = f"{phase_words(phase)}, {dtype_words(dtype)} (GiB)"
            columns.append(Beside(header, peaks(having(frame, phase=phase, dtype=dtype), "GiB")))
    steps = having(frame, phase="train_step", dtype=SINGLE)
    predicted = (steps["predicted_mib"] / MIB_IN_GIB).map(significant)
    columns.append(Beside(f"predicted, train step, {dtype_words(SINGLE)} (GiB)", predicted))
    for name, shares in component_shares(steps).items():
        columns.append(Beside(f"{name} (%)", shares.map(lambda s: percent(s, 0).rstrip(" %"))))
    note = (
        f"Shares: of the predicted peak of a train step in {dtype_words(SINGLE)}. Memory peaks near"
        " the end of the forward, before there are gradients, or near that of the backward, when"
        " activations are gone."
    )
    return side_by_side("Peak memory", frame, CELL, columns, note)


def at_usual_context(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest batch, of each size at its context nearest to the usual one."""
    frame = having(frame, batch=frame["batch"].max())
    off = (frame["context_length"] - CONTEXT).abs()
    return frame[off == off.groupby(frame["size"]).transform("min")]


def component_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of each component in the predicted peak of each row."""
    parts = {name: frame[f"{name}_mib"] / frame["predicted_mib"] for name in COMPONENTS}
    return pd.DataFrame(parts, index=frame.index)


def peaks(frame: pd.DataFrame, unit: str = "MiB") -> pd.Series:
    """The measured peak of each row where it may be shown, the status in words elsewhere."""
    scale = {"MiB": 1, "GiB": MIB_IN_GIB}[unit]
    words = value_cells(frame, frame["peak_mib"] / scale)
    return words.where(gates.shown(frame), status_words(frame))


def peak_tables(evidence: MachineEvidence) -> list[Lines]:
    """Y1, a table a phase."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    return each(*(_of_phase(frame, phase) for phase in in_order("phase", frame["phase"])))


def _of_phase(frame: pd.DataFrame, phase: str) -> Lines | None:
    frame = having(frame, phase=phase)
    columns = []
    for dtype in in_order("dtype", frame["dtype"]):
        rows, words = having(frame, dtype=dtype), dtype_words(dtype)
        difference = rows["peak_mib"] / rows["predicted_mib"] - 1
        columns += [
            Beside(f"measured, {words} (MiB)", peaks(rows)),
            Beside(f"predicted, {words} (MiB)", rows["predicted_mib"].map(significant)),
            Beside(f"difference, {words}", value_cells(rows, difference, signed_percent)),
        ]
    instruments = ", ".join(sorted(frame["instrument"].dropna().unique()))
    note = f"Measured by: {instruments}." if instruments else ""
    return side_by_side(f"Peak of one {phase_words(phase)}", frame, CELL, columns, note)


TABLES = (Table("Y1", "Peak memory, measured and predicted", peak_tables),)
