"""A1: plain attention; A2: compiled and in other numerics; A3: where it ends; A4: its memory."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having, in_reading_order
from lmperf.reporting.numbers import significant
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.speedup import Series, speedup_cells
from lmperf.reporting.tables import (
    KERNELS,
    Lines,
    Owed,
    Table,
    kernel_times,
    medians,
    status_words,
    value_cells,
)

STEM = "attention"
CELL = ["d_head", "seq_len", "batch", "causal"]
BASE = Series.of(implementation="eager", dtype="float32")
D_HEAD = 64
TENSORS = ("inputs", "scores", "scaled", "softmax", "output")
# A gradient for each of the four inputs but that of the output, which is one itself.
GRADIENTS_PER_INPUT = 3 / 4


def head(evidence: MachineEvidence) -> Lines | None:
    """One line a length, at the usual width and float32: times, compiled, what is held."""
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    d_head = min(frame["d_head"].unique(), key=lambda d: (abs(d - D_HEAD), d))
    frame = having(frame, d_head=d_head, dtype="float32")
    compiled = Series.of(implementation="compiled", dtype="float32")
    columns = []
    for phase in in_order("phase", frame["phase"]):
        own = having(BASE.rows(frame), phase=phase)
        speed = speedup_cells(evidence, STEM, compiled, BASE)
        columns += [
            Beside(f"{phase_words(phase)} (ms)", medians(own)),
            Beside(f"{phase_words(phase)}, compiled", speed[_of(frame, speed, phase)]),
        ]
    backward = having(BASE.rows(frame), phase="backward")
    columns += [
        Beside("kept for the backward (MiB)", value_cells(backward, _held(backward))),
        Beside("peak (MiB)", value_cells(backward, backward["peak_mib"])),
    ]
    note = "Times: median. Compiled: speed-up over eager, with its interval."
    return side_by_side("Plain attention, float32", frame, CELL, columns, note)


def _of(frame: pd.DataFrame, cells: pd.Series, phase: str) -> pd.Index:
    return cells.index.intersection(having(frame, phase=phase).index)


def _held(frame: pd.DataFrame) -> pd.Series:
    """MiB that the forward leaves for the backward, the inputs not counted."""
    return frame["saved_mib"] - frame["resident_mib"].fillna(0.0)


def plain_tables(evidence: MachineEvidence) -> list[Lines]:
    """A1, a table a dtype: the times of each phase, memory before backward, status."""
    eager = having(evidence.frame(STEM), implementation="eager")
    return each(*(_plain(eager, dtype) for dtype in in_order("dtype", eager["dtype"])))


def _plain(eager: pd.DataFrame, dtype: str) -> Lines | None:
    frame = having(eager, dtype=dtype)
    backward = having(frame, phase="backward")
    columns = [
        Beside(f"{phase_words(phase)} (ms)", kernel_times(having(frame, phase=phase)))
        for phase in in_order("phase", frame["phase"])
    ]
    saved = Beside("memory before backward (MiB)", backward["saved_mib"].map(significant))
    status = Beside("status", status_words(backward).str.replace(r" \(.*", "", regex=True))
    caption = f"Plain PyTorch attention, {dtype_words(dtype)}"
    return side_by_side(caption, frame, CELL, [*columns, saved, status], KERNELS)


def beside_tables(evidence: MachineEvidence) -> list[Lines]:
    """A2, a table a phase and dtype: eager, compiled; then the numerics against float32."""
    frame = evidence.frame(STEM)
    phases, dtypes = in_order("phase", frame["phase"]), in_order("dtype", frame["dtype"])
    compiled = [_compiled(evidence, phase, dtype) for phase in phases for dtype in dtypes]
    return each(*compiled, *(_numerics(evidence, phase) for phase in phases))


def _compiled(evidence: MachineEvidence, phase: str, dtype: str) -> Lines | None:
    frame = having(evidence.frame(STEM), phase=phase, dtype=dtype)
    base = Series.of(implementation="eager")
    columns = [Beside("eager (ms)", kernel_times(base.rows(frame)))]
    for name in in_order("implementation", set(frame["implementation"]) - {"eager"}):
        other = Series.of(implementation=name)
        columns += [
            Beside(f"{other.words} (ms)", kernel_times(other.rows(frame))),
            Beside(f"{other.words} over eager", speedup_cells(evidence, STEM, other, base)),
        ]
    caption = f"{phase_words(phase).capitalize()}, {dtype_words(dtype)}"
    return side_by_side(caption, frame, CELL, columns, KERNELS) if len(columns) > 1 else None


def _numerics(evidence: MachineEvidence, phase: str) -> Lines | None:
    frame = having(evidence.frame(STEM), phase=phase)
    columns = []
    for name in in_order("implementation", frame["implementation"]):
        for dtype in in_order("dtype", set(frame["dtype"]) - {"float32"}):
            ours, base = (Series.of(implementation=name, dtype=d) for d in (dtype, "float32"))
            header = f"{ours.words} over {base.words}"
            columns.append(Beside(header, speedup_cells(evidence, STEM, ours, base)))
    return side_by_side(f"{phase_words(phase).capitalize()}, the numerics", frame, CELL, columns)


def limit_table(evidence: MachineEvidence) -> list[Lines]:
    """A3: the closed form, tensor by tensor, beside what the allocator said."""
    frame = evidence.frame("attention_limit")
    if frame is None:
        return []
    frame = in_reading_order(frame)
    sizes = {f"{name} (MiB)": _mebibytes(frame, f"{name}_mib") for name in TENSORS}
    table = pd.DataFrame(
        {
            "numerics": frame["dtype"].map(dtype_words),
            "first length that cannot fit": frame["seq_len"].map("{:.0f}".format),
            "free before (MiB)": _mebibytes(frame, "free_before_mib"),
            **sizes,
            "outcome": frame["outcome"],
            "asked for, closed form (MiB)": _mebibytes(frame, "predicted_requested_mib"),
            "asked for (MiB)": _mebibytes(frame, "requested_mib"),
            "free then (MiB)": _mebibytes(frame, "free_mib"),
        }
    )
    row = frame.iloc[0]
    what = f"batch {row['batch']:.0f}, d_head {row['d_head']:.0f}, no mask, forward"
    return [Lines(f"The first power of two that runs out of memory, {what}", table)]


def _mebibytes(frame: pd.DataFrame, column: str) -> list[str]:
    return [significant(value, 4) for value in frame[column]]


def memory_table(evidence: MachineEvidence) -> list[Lines]:
    """A4: MiB of the inputs, after either direction and at the peak of each, and differences."""
    frame = having(evidence.frame(STEM), implementation="eager")
    frame = frame[gates.shown(frame) & frame["saved_mib"].notna()]
    forward, backward = (having(frame, phase=phase) for phase in ("forward", "backward"))
    inputs, held = backward["resident_mib"], backward["saved_mib"]
    left = inputs * (1 + GRADIENTS_PER_INPUT)
    sizes = {
        "inputs": inputs,
        "peak of the forward": forward["peak_mib"],
        "after the forward": held,
        "difference": held - inputs,
        "peak of the backward": backward["peak_mib"],
        "after the backward, closed form": left,
        "difference to after the forward": left - held,
    }
    columns = [Beside(name, values.map(significant)) for name, values in sizes.items()]
    words = frame.assign(dtype=frame["dtype"].map(dtype_words))
    return each(side_by_side("Memory of plain attention (MiB)", words, ["dtype", *CELL], columns))


def _is_eager(frame: pd.DataFrame) -> pd.Series:
    return frame["implementation"] == "eager"


TABLES = (
    Table("A1", "Plain PyTorch attention", plain_tables, Owed(_is_eager)),
    Table("A2", "The same compiled, and in other numerics", beside_tables),
    Table(
        "A3",
        "The smallest attention that runs out of memory",
        limit_table,
        Owed(stem="attention_limit"),
    ),
    Table("A4", "Memory of attention, step by step", memory_table, Owed(_is_eager)),
)
