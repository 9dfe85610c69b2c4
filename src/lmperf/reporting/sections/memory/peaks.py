"""The head table of the memory section and tables Y1: measured and predicted peaks."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import signed_percent, whole_percent
from lmperf.reporting.side_by_side import Beside, each, memory, share, side_by_side
from lmperf.reporting.tables import (
    TableGroup,
    number_cells,
    status_cells,
    value_cells,
)
from lmperf.results import LOWER, Table

STEM = "memory"
CELL = ["size", "context_length", "batch"]
CONTEXT = 512
# The project's model, whose peak has a prediction; others are peers and custom models.
MODEL = "eager"
SINGLE, HALF = "float32", "autocast_bfloat16"
COMPONENTS = ("parameters", "gradients", "optimizer", "activations")
STATE = ("parameters", "gradients", "optimizer")
MIB_IN_GIB = 1024
# A component with a smaller share of the peak counts as almost absent.
HARDLY_ANY = 0.02


def head(evidence: MachineEvidence) -> Table | None:
    """The head table, a line per size: peaks of a train step, and what the float32 peak is made of.

    Each size is at its context nearest to ``CONTEXT``. Shares are percent of the predicted
    train-step peak in float32. None without rows.
    """
    frame = evidence.frame(STEM)
    if frame is None or MODEL not in set(frame["implementation"]):
        return None
    frame = at_usual_context(having(frame, implementation=MODEL, phase="train_step"))
    columns = []
    for dtype in (SINGLE, HALF):
        cells = peaks(having(frame, dtype=dtype), MIB_IN_GIB)
        columns.append(memory(dtype_words(dtype), cells, f"train_step.{dtype}.peak", "GiB"))
    single = having(frame, dtype=SINGLE)
    predicted = number_cells(single["predicted_mib"] / MIB_IN_GIB)
    header = f"{dtype_words(SINGLE)}, predicted"
    columns.insert(1, memory(header, predicted, f"train_step.{SINGLE}.predicted", "GiB"))
    shares = component_shares(single)
    parts = {"model, optimizer": shares[list(STATE)].sum(axis=1), **shares[["activations"]]}
    for name, values in parts.items():
        cells = number_cells(100 * values, whole_percent)
        named = f"{name.split(',')[0]}.share"
        columns.append(share(f"{name} (%)", cells, named, "%", "whole_percent"))
    return side_by_side("Peak memory of a train step", frame, CELL, columns, _note(single))


def _note(steps: pd.DataFrame) -> str:
    """A note: what the shares are of, which tensors make up the rest, when the peak occurs."""
    workspace = " and workspace" if (steps["workspace_mib"] > 0).any() else ""
    note = (
        f"Shares: of the predicted peak in {dtype_words(SINGLE)}; the model is parameters and"
        f" gradients. The rest is temporary tensors{workspace}. Forwards: Y1."
    )
    if (component_shares(steps)["gradients"] < HARDLY_ANY).all():
        note += " The peak is at the beginning of the backward, before nearly any gradient exists."
    return note


def call_words(phase: str) -> str:
    """The phase in words; a forward gets "no gradients", because this benchmark runs it so."""
    return phase_words(phase) + (", no gradients" if phase == "forward" else "")


def at_usual_context(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest batch; of each size, those at its context nearest to ``CONTEXT``."""
    frame = having(frame, batch=frame["batch"].max())
    off = (frame["context_length"] - CONTEXT).abs()
    return frame[off == off.groupby(frame["size"]).transform("min")]


def component_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """The fraction of each row's predicted peak that each of ``COMPONENTS`` takes."""
    parts = {name: frame[f"{name}_mib"] / frame["predicted_mib"] for name in COMPONENTS}
    return pd.DataFrame(parts, index=frame.index)


def over_float32(frame: pd.DataFrame) -> pd.Series:
    """For each bf16-autocast row, its peak over the float32 peak of the same cell, minus one."""
    key = [*CELL, "phase"]
    single = having(frame, dtype=SINGLE).set_index(key)["peak_mib"]
    half = having(frame, dtype=HALF)
    return half["peak_mib"] / single.reindex(pd.MultiIndex.from_frame(half[key])).to_numpy() - 1


def peaks(frame: pd.DataFrame, mib: int = 1) -> pd.Series:
    """The measured peak of each row in units of ``mib`` MiB; its status if it may not be shown."""
    cells = value_cells(frame, frame["peak_mib"] / mib)
    return cells.where(gates.shown(frame), status_cells(frame))


def peak_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables Y1, one for each phase: measured and predicted peaks."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    return each(*(_of_phase(frame, phase) for phase in in_order("phase", frame["phase"])))


def _of_phase(frame: pd.DataFrame, phase: str) -> Table | None:
    every = having(frame, phase=phase)
    frame, columns = having(every, implementation=MODEL), []
    for dtype in in_order("dtype", frame["dtype"]):
        rows, words = having(frame, dtype=dtype), dtype_words(dtype)
        difference = rows["peak_mib"] / rows["predicted_mib"] - 1
        predicted = number_cells(rows["predicted_mib"])
        columns += [
            memory(f"measured, {words}", peaks(rows), f"{phase}.{dtype}.peak"),
            memory(f"predicted, {words}", predicted, f"{phase}.{dtype}.predicted"),
            _relative(f"difference, {words}", rows, difference, f"{phase}.{dtype}.difference"),
        ]
    change = over_float32(frame[gates.shown(frame)])
    against = f"{dtype_words(HALF)} against {dtype_words(SINGLE)}"
    named = f"{phase}.{HALF}.over.{SINGLE}"
    columns.append(_relative(against, frame.loc[change.index], change, named))
    for name in in_order("implementation", every["implementation"]):
        for dtype in in_order("dtype", every["dtype"]) if name != MODEL else ():
            rows = having(every, implementation=name, dtype=dtype)
            columns += _custom(rows, having(frame, dtype=dtype), phase, name, dtype)
    instruments = ", ".join(sorted(every["instrument"].dropna().unique()))
    note = f"Measured by: {instruments}." if instruments else ""
    return side_by_side(f"Peak of one {call_words(phase)}", every, CELL, columns, note)


def _relative(header: str, rows: pd.DataFrame, change: pd.Series, name: str) -> Beside:
    """A column of the relative differences in memory ``change``, for rows that may be shown."""
    cells = value_cells(rows, change, signed_percent)
    return Beside(header, cells, name, "", "signed_percent", LOWER)


def _custom(
    rows: pd.DataFrame, model: pd.DataFrame, phase: str, name: str, dtype: str
) -> list[Beside]:
    """Two columns: the peak of a custom model or peer, and its difference from our model."""
    known = model[gates.shown(model)].set_index(CELL)["peak_mib"]
    known = known.reindex(pd.MultiIndex.from_frame(rows[CELL])).to_numpy()
    words, named = f"{name}, {dtype_words(dtype)}", f"{phase}.{name}.{dtype}"
    change = rows["peak_mib"] / known - 1
    return [
        memory(f"measured, {words}", peaks(rows), f"{named}.peak"),
        _relative(f"{words}, against {MODEL}", rows, change, f"{named}.over.{MODEL}"),
    ]


TABLES = (TableGroup("Y1", "Peak memory, measured and predicted", peak_tables),)
