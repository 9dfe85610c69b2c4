"""A1: plain attention; A2: compiled and in other numerics; A3: where it ends; A4: its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import MIB, significant
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

STEM, LIMIT = "attention", "attention_limit"
CELL = ["d_head", "seq_len", "batch", "causal"]
EAGER = Series.of(implementation="eager")
BASE = Series.of(implementation="eager", dtype="float32")
D_HEAD = 64
MOST = 12
TENSORS = ("inputs", "scores", "scaled", "softmax", "output")
# A gradient for each of the four inputs but that of the output, which is one itself.
GRADIENTS_PER_INPUT = 3 / 4
PREDICTED = "predicted_requested_mib"


def usual(evidence: MachineEvidence) -> pd.DataFrame | None:
    """The rows of one cell but for the length: float32 where it is there, d_head near D_HEAD.

    They end with the first length that does not fit: of the grid itself, or, where all of that
    fits, the one that ``attention_limit`` ran in the same cell.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    frame = having(frame, dtype=in_order("dtype", frame["dtype"])[0])
    frame = having(frame, d_head=min(frame["d_head"].unique(), key=lambda d: (abs(d - D_HEAD), d)))
    frame = having(frame, batch=frame["batch"].max())
    frame = having(frame, causal=frame["causal"].min())
    full = having(frame, implementation="eager", status="oom")
    if len(full):
        return frame[frame["seq_len"] <= full["seq_len"].min()]
    cell = {name: frame[name].iloc[0] for name in ("batch", "d_head", "dtype", "causal")}
    beyond = having(ran_out(evidence), **cell)
    beyond = beyond[beyond["seq_len"] > frame["seq_len"].max()]
    return pd.concat([frame, beyond]) if len(beyond) else frame


def ran_out(evidence: MachineEvidence) -> pd.DataFrame:
    """The forwards of ``attention_limit`` that were run and did not fit, as rows of ``attention``.

    Their indices are none of that benchmark's. A machine may have no such row.
    """
    frame = evidence.frame(LIMIT)
    if frame is None:
        return pd.DataFrame(columns=[*CELL, "dtype", "requested_bytes", PREDICTED])
    full = frame[frame["requested_mib"].notna()].rename(index=lambda row: -1 - row)
    sizes = {f"{name}_bytes": full[f"{name}_mib"] * MIB for name in ("requested", "free")}
    return full.assign(causal=False, status="oom", **sizes)


def head(evidence: MachineEvidence) -> Lines | None:
    """One line a length, at the usual width and float32: times, compiled, what is held."""
    frame = usual(evidence)
    if frame is None:
        return None
    frame = frame[frame["seq_len"].isin(sorted(frame["seq_len"].unique())[-MOST:])]
    dtype = frame["dtype"].iloc[0]
    base, compiled = (Series.of(implementation=n, dtype=dtype) for n in ("eager", "compiled"))
    speed = speedup_cells(evidence, STEM, compiled, base)
    columns = []
    for phase in in_order("phase", frame["phase"]):
        rows = having(frame, phase=phase)
        columns += [
            Beside(f"{phase_words(phase)} (ms)", medians(base.rows(rows))),
            Beside(f"{phase_words(phase)}, compiled", speed[speed.index.isin(rows.index)]),
        ]
    backward = having(base.rows(frame), phase="backward")
    columns += [
        Beside("kept for the backward (MiB)", value_cells(backward, held(backward))),
        Beside("peak of the backward (MiB)", value_cells(backward, backward["peak_mib"])),
    ]
    note = "Times: median. Compiled: speed-up over eager, with its interval."
    caption = f"Plain attention, {dtype_words(dtype)}"
    return side_by_side(caption, frame, CELL, columns, note)


def held(frame: pd.DataFrame) -> pd.Series:
    """MiB that the forward leaves for the backward, the inputs not counted."""
    return frame["saved_mib"] - frame["resident_mib"].fillna(0.0)


def _by_dtype(make: Callable[[pd.DataFrame, str], Lines | None]) -> Callable:
    """A table a dtype of eager attention: ``make`` of its rows and the words of the dtype."""

    def tables(evidence: MachineEvidence) -> list[Lines]:
        frame = evidence.frame(STEM)
        if frame is None:
            return []
        rows = {d: EAGER.rows(having(frame, dtype=d)) for d in in_order("dtype", frame["dtype"])}
        return each(*(make(own, dtype_words(d)) for d, own in rows.items() if len(own)))

    return tables


def _plain(frame: pd.DataFrame, numerics: str) -> Lines | None:
    """A1: the times of each phase, memory before backward, status."""
    backward = having(frame, phase="backward")
    columns = [
        Beside(f"{phase_words(phase)} (ms)", kernel_times(having(frame, phase=phase)))
        for phase in in_order("phase", frame["phase"])
    ]
    saved = Beside("memory before backward (MiB)", backward["saved_mib"].map(significant))
    caption = f"Plain PyTorch attention, {numerics}"
    return side_by_side(caption, frame, CELL, [*columns, saved, _status(frame)], KERNELS)


def _status(frame: pd.DataFrame) -> Beside:
    """The status of a cell: that of a phase which is not ok, if there is one."""
    words = status_words(frame.assign(requested_bytes=None, free_bytes=None))
    # A table keeps the last row of a cell.
    return Beside("status", words.sort_values(key=lambda w: w != "ok", kind="stable"))


def beside_tables(evidence: MachineEvidence) -> list[Lines]:
    """A2, a table a phase and dtype: eager, compiled; then the numerics against float32."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    phases, dtypes = in_order("phase", frame["phase"]), in_order("dtype", frame["dtype"])
    compiled = [_compiled(evidence, phase, dtype) for phase in phases for dtype in dtypes]
    return each(*compiled, *(_numerics(evidence, phase) for phase in phases))


def _compiled(evidence: MachineEvidence, phase: str, dtype: str) -> Lines | None:
    frame = having(evidence.frame(STEM), phase=phase, dtype=dtype)
    columns = [Beside(f"{EAGER.words} (ms)", kernel_times(EAGER.rows(frame)))]
    for name in in_order("implementation", set(frame["implementation"]) - {"eager"}):
        other = Series.of(implementation=name)
        columns += [
            Beside(f"{other.words} (ms)", kernel_times(other.rows(frame))),
            Beside(f"{other.words} over {EAGER.words}", _speed(evidence, other, EAGER)),
        ]
    caption = f"{phase_words(phase).capitalize()}, {dtype_words(dtype)}"
    return side_by_side(caption, frame, CELL, columns, KERNELS) if len(columns) > 1 else None


def _numerics(evidence: MachineEvidence, phase: str) -> Lines | None:
    frame = having(evidence.frame(STEM), phase=phase)
    columns = []
    for name in in_order("implementation", frame["implementation"]):
        for dtype in in_order("dtype", set(frame["dtype"]) - {"float32"}):
            ours, base = (Series.of(implementation=name, dtype=d) for d in (dtype, "float32"))
            columns.append(Beside(f"{ours.words} over {base.words}", _speed(evidence, ours, base)))
    return side_by_side(f"{phase_words(phase).capitalize()}, the numerics", frame, CELL, columns)


def _speed(evidence: MachineEvidence, ours: Series, base: Series) -> pd.Series:
    return speedup_cells(evidence, STEM, ours, base)


def limit_table(evidence: MachineEvidence) -> list[Lines]:
    """A3: the closed form, tensor by tensor, beside what the allocator said."""
    frame = evidence.frame(LIMIT)
    if frame is None:
        return []
    sizes = {
        "free before (MiB)": "free_before_mib",
        **{f"{name} (MiB)": f"{name}_mib" for name in TENSORS},
        "asked for, closed form (MiB)": PREDICTED,
        "asked for (MiB)": "requested_mib",
        "free then (MiB)": "free_mib",
    }
    columns = [
        Beside("first length that cannot fit", frame["seq_len"].map("{:.0f}".format)),
        *(Beside(name, frame[c].map(lambda v: significant(v, 4))) for name, c in sizes.items()),
        Beside("outcome", frame["outcome"].fillna(status_words(frame))),
    ]
    caption = "The first power of two that runs out of memory, forward, no mask"
    table = side_by_side(caption, frame, ["dtype", "batch", "d_head"], columns)
    words = table.frame.assign(dtype=table.frame["dtype"].map(dtype_words))
    return [replace(table, frame=words.rename(columns={"dtype": "numerics"}))]


def _memory(frame: pd.DataFrame, numerics: str) -> Lines | None:
    """A4: MiB of the inputs, after and at the peak of each direction, and differences."""
    frame = frame[gates.shown(frame) & frame["saved_mib"].notna()]
    forward, backward = (having(frame, phase=phase) for phase in ("forward", "backward"))
    inputs, kept = backward["resident_mib"], backward["saved_mib"]
    left = inputs * (1 + GRADIENTS_PER_INPUT)
    sizes = {
        "inputs": inputs,
        "peak of the forward": forward["peak_mib"],
        "after the forward": kept,
        "difference": kept - inputs,
        "peak of the backward": backward["peak_mib"],
        "after the backward, closed form": left,
        "difference to after the forward": left - kept,
    }
    columns = [Beside(f"{name} (MiB)", values.map(significant)) for name, values in sizes.items()]
    caption = f"Memory of plain attention, {numerics}"
    return side_by_side(caption, frame, CELL, columns) if len(frame) else None


def _is_eager(frame: pd.DataFrame) -> pd.Series:
    return frame["implementation"] == "eager"


def _is_beside(frame: pd.DataFrame) -> pd.Series:
    return ~_is_eager(frame) | (frame["dtype"] != "float32")


TABLES = (
    Table("A1", "Plain PyTorch attention", _by_dtype(_plain), Owed(_is_eager)),
    Table("A2", "The same compiled, and in other numerics", beside_tables, Owed(_is_beside)),
    Table("A3", "The smallest attention that runs out of memory", limit_table, Owed(stem=LIMIT)),
    Table("A4", "Memory of attention, step by step", _by_dtype(_memory), Owed(_is_eager)),
)
