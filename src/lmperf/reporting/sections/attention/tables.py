"""Tables of the attention section: the head table (the one in the write-up) and A1 to A4.

A1: times of plain attention. A2: compiled attention and other dtypes. A3: the first length that
does not fit into memory. A4: memory of each step.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from lmperf.dtypes import STORED_DTYPES, dtype_of
from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import EMPTY, MIB, Spread, absent, precise, ranged
from lmperf.reporting.published import figures_of
from lmperf.reporting.sections.attention.bound import CELL, STEM, bound_tables, bounds
from lmperf.reporting.sections.attention.bound import note as note_on_bounds
from lmperf.reporting.side_by_side import (
    Beside,
    each,
    memory,
    side_by_side,
    speedup,
    text,
    time,
)
from lmperf.reporting.speedup import Series, speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    kernel_note,
    kernel_times,
    medians,
    number_cells,
    status_cells,
    status_words,
    text_cells,
    value_cells,
)
from lmperf.results import Table

LIMIT = "attention_limit"
EAGER, COMPILED = (Series.of(implementation=name) for name in ("eager", "compiled"))
BASE = Series.of(implementation="eager", dtype="float32")
D_HEAD, MOST = 64, 12
TENSORS = ("inputs", "scores", "scaled", "softmax", "output")
# dq, dk and dv: three gradients for four inputs (the fourth is the gradient of the output).
GRADIENTS_PER_INPUT = 3 / 4
PREDICTED = "predicted_requested_mib"
BEFORE, KEPT = "memory before backward, with inputs", "kept for the backward"
SOURCES, UNITS = ["write-up 000", "write-up 001"], {"MB": 1e6, "GB": 1e9}


def usual(evidence: MachineEvidence) -> pd.DataFrame | None:
    """The rows that the head table and the figure show: one dtype, d_head and batch, every length.

    The dtype is the first in reading order, the d_head the nearest to ``D_HEAD``, the batch the
    largest. Rows end at the first length at which eager attention ran out of memory. If every
    length of the grid fits, a longer row from ``attention_limit`` is added, if there is one.
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
    """Rows of the benchmark ``attention_limit`` that ran out of memory, as rows of ``attention``.

    Row labels are negative, so that none equals a row label of ``attention``. May be empty.
    """
    frame = evidence.frame(LIMIT)
    if frame is None:
        return pd.DataFrame(columns=[*CELL, "dtype", "requested_bytes"])
    full = frame[frame["requested_mib"].notna()].rename(index=lambda row: -1 - row)
    sizes = {f"{name}_bytes": full[f"{name}_mib"] * MIB for name in ("requested", "free")}
    return full.assign(causal=False, status="oom", **sizes)


def head(evidence: MachineEvidence) -> Table | None:
    """The head table, a line for each length: times, what bounds them, speed-ups, memory."""
    frame = usual(evidence)
    if frame is None:
        return None
    lengths = sorted(frame["seq_len"].unique())[-MOST:]
    frame = frame[frame["seq_len"].isin(lengths)]
    dtype = frame["dtype"].iloc[0]
    eager, compiled = (
        Series.of(implementation=name, dtype=dtype) for name in ("eager", "compiled")
    )
    speeds = speedup_cells(evidence, STEM, compiled, eager)
    columns, bound = [], bounds(evidence)["bound"]
    for phase in in_order("phase", frame["phase"]):
        rows, words = having(frame, phase=phase), phase_words(phase)
        timed = eager.rows(rows).assign(requested_bytes=None, free_bytes=None)  # A3 has the sizes
        columns.append(time(words, medians(timed), f"{phase}.eager"))
        if phase == "forward":
            columns.append(text("bound by", text_cells(bound), "forward.bound"))
        over = speeds[speeds.index.intersection(rows.index)]
        columns.append(
            speedup(f"{words}, compiled over PyTorch", over, f"{phase}.compiled.over.eager")
        )
    backward = having(eager.rows(frame), phase="backward")
    peak = value_cells(backward, backward["peak_mib"])
    columns.append(memory("peak of the backward", peak, "backward.eager.peak"))
    note = "Times: medians. The peak includes the inputs."
    if bound.index.isin(frame.index).any():
        note += f" {note_on_bounds(evidence, dtype)}"
    if (frame["status"] == "oom").any():
        note += " OOM: out of memory (sizes: A3)."
    if lengths[-1] > 2 * lengths[-2:][0]:
        note += f" No length between {lengths[-2]:,} and {lengths[-1]:,} was run."
    return side_by_side(f"Plain attention, {dtype_words(dtype)}", frame, CELL, columns, note)


def held(frame: pd.DataFrame) -> pd.Series:
    """MiB that each row's forward keeps for the backward, without the inputs."""
    return frame["saved_mib"] - frame["resident_mib"].fillna(0.0)


def _by_dtype(make: Callable[[pd.DataFrame], Table | None], among: Callable) -> Callable:
    """Return a function that makes one table per dtype from the evidence.

    make: all rows of a dtype -> table. among: data frame -> mask; a dtype needs a selected row.
    """

    def tables(evidence: MachineEvidence) -> list[Table]:
        frame = evidence.frame(STEM)
        dtypes = [] if frame is None else in_order("dtype", frame[among(frame)]["dtype"])
        return each(*(make(having(frame, dtype=dtype)) for dtype in dtypes))

    return tables


def _plain(frame: pd.DataFrame) -> Table | None:
    """Table A1 of one dtype: times of each phase, memory before the backward, status."""
    dtype, frame = frame["dtype"].iloc[0], EAGER.rows(frame)
    backward = having(frame, phase="backward")
    # A table keeps the last row of a cell, so rows that are not ok come last.
    status = status_cells(frame.assign(requested_bytes=None, free_bytes=None))
    is_ok = status.map(lambda cell: cell.words == "ok").astype(bool)
    status = pd.concat([status[is_ok], status[~is_ok]])
    columns = [
        *(
            time(phase_words(phase), kernel_times(having(frame, phase=phase)), f"{phase}.eager")
            for phase in in_order("phase", frame["phase"])
        ),
        memory(BEFORE, number_cells(backward["saved_mib"]), "backward.eager.before"),
        text("status", status, "status"),
    ]
    caption = f"Plain PyTorch attention, {dtype_words(dtype)}"
    return side_by_side(caption, frame, CELL, columns, kernel_note(frame))


def beside_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables A2: one per dtype that compares implementations, then one that compares dtypes.

    The tables per dtype hold times of all implementations and speed-ups over eager. The last table
    holds speed-ups of each implementation in other dtypes over float32.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    by_dtype = (having(frame, dtype=dtype) for dtype in in_order("dtype", frame["dtype"]))
    return each(*(_implementations(evidence, rows) for rows in by_dtype), _dtypes(evidence, frame))


def _implementations(evidence: MachineEvidence, frame: pd.DataFrame) -> Table | None:
    """A table A2: times of all implementations in one dtype, and speed-ups over eager, by phase."""
    names = in_order("implementation", set(frame["implementation"]) - {"eager"})
    others = [Series.of(implementation=name) for name in names]
    columns = []
    for phase in in_order("phase", frame["phase"]):
        rows, words = having(frame, phase=phase), phase_words(phase)
        for series in (EAGER, *others):
            cells, name = kernel_times(series.rows(rows)), f"{phase}.{series.name}"
            columns.append(time(f"{words}, {series.words}", cells, name))
        columns += [_over(evidence, rows, series, EAGER) for series in others]
    caption = f"Plain attention and others, {dtype_words(frame['dtype'].iloc[0])}"
    return side_by_side(caption, frame, CELL, columns, kernel_note(frame)) if others else None


def _dtypes(evidence: MachineEvidence, frame: pd.DataFrame) -> Table | None:
    """The last table A2: speed-ups of each implementation over itself in float32, by phase."""
    columns = []
    for phase in in_order("phase", frame["phase"]):
        rows = having(frame, phase=phase)
        for name in in_order("implementation", rows["implementation"]):
            for dtype in in_order("dtype", set(rows["dtype"]) - {"float32"}):
                faster, base = (Series.of(implementation=name, dtype=d) for d in (dtype, "float32"))
                columns.append(_over(evidence, rows, faster, base))
    return side_by_side("Other dtypes over float32", frame, CELL, columns)


def _over(evidence: MachineEvidence, rows: pd.DataFrame, series: Series, base: Series) -> Beside:
    """A column with the speed-ups of ``series`` over ``base``; ``rows`` are those of one phase."""
    cells, phase = speedup_cells(evidence, STEM, series, base), rows["phase"].iloc[0]
    return speedup(
        f"{phase_words(phase)}, {series.words} over {base.words}",
        cells[cells.index.isin(rows.index)],
        f"{phase}.{series.name}.over.{base.name}",
    )


def limit_table(evidence: MachineEvidence) -> list[Table]:
    """Table A3: predicted size of each tensor, and the sizes that the OOM message reports."""
    frame = evidence.frame(LIMIT)
    if frame is None:
        return []
    sizes = {
        "free before": "free_before_mib",
        **{name: f"{name}_mib" for name in TENSORS},
        "asked for, closed form": PREDICTED,
        "asked for": "requested_mib",
        "free then": "free_mib",
    }
    lengths = number_cells(frame["seq_len"], _whole)
    columns = [
        text("first length that cannot fit", lengths, "seq_len", "whole"),
        *(memory(words, number_cells(frame[c], precise), c) for words, c in sizes.items()),
        text("outcome", text_cells(frame["outcome"].fillna(status_words(frame))), "outcome"),
    ]
    caption = "The least power of two that cannot fit, forward, no mask"
    return each(side_by_side(caption, frame, ["dtype", "batch", "d_head"], columns))


def _whole(number: float) -> str:
    return EMPTY if absent(number) else f"{number:.0f}"


def _memory(frame: pd.DataFrame) -> Table | None:
    """Table A4 of one dtype: MiB of the inputs, at each peak, before and after the backward."""
    dtype = frame["dtype"].iloc[0]
    frame = frame[gates.shown(frame) & frame["peak_mib"].notna()]
    forward, backward = (having(EAGER.rows(frame), phase=p) for p in ("forward", "backward"))
    compiled = having(COMPILED.rows(frame), phase="backward")
    inputs, before = backward["resident_mib"], backward["saved_mib"]
    after = inputs * (1 + GRADIENTS_PER_INPUT)
    sizes = {
        "inputs": ("inputs", inputs),
        "peak of the forward": ("forward.eager.peak", forward["peak_mib"]),
        BEFORE: ("backward.eager.before", before),
        KEPT: ("backward.eager.kept", held(backward)),
        "peak of the backward": ("backward.eager.peak", backward["peak_mib"]),
        "the same, compiled": ("backward.compiled.peak", compiled["peak_mib"]),
        "after the backward, closed form": ("backward.eager.after", after),
        "after less before": ("backward.eager.after_less_before", after - before),
    }
    columns = [memory(words, number_cells(of), name) for words, (name, of) in sizes.items()]
    caption = f"Memory of plain attention, {dtype_words(dtype)}"
    note = _published() if dtype == "float32" else ""
    return side_by_side(caption, frame, CELL, columns, note) if len(frame) else None


def _published() -> str:
    """A note that compares the memory before the backward of two published write-ups.

    Its unit is one float32 tensor of [batch, length, length].
    """
    rows = having(figures_of(STEM), source=SOURCES, unit=[*UNITS], implementation="eager")
    rows = rows[rows["value"] != "OOM"].astype({"value": float, "batch": int, "seq_len": int})
    one = rows["batch"] * rows["seq_len"] ** 2 * dtype_of("float32").bytes
    rows = rows.assign(matrices=rows["value"] * rows["unit"].map(UNITS) / one)
    wide = rows.pivot_table("matrices", ["seq_len", "batch", "d_head"], "source")[SOURCES].dropna()
    long = wide.index.get_level_values("seq_len").max()
    apart = ranged(Spread.of(wide[SOURCES[1]] / wide[SOURCES[0]]))
    first, second = (ranged(Spread.of(wide.loc[long, source])) for source in SOURCES)
    return (
        f"The memory before backward of two published write-ups (000, 001) differs by a factor of"
        f" {apart}: at length {long:,} it is {first} in the one and {second} in the other, in"
        " matrices of length x length. Compare *kept for the backward* and the peak of the forward."
    )


def _is_eager(frame: pd.DataFrame) -> pd.Series:
    return frame["implementation"] == "eager"


def _is_beside(frame: pd.DataFrame) -> pd.Series:
    return ~_is_eager(frame) | (frame["dtype"] != "float32")


def _has_memory_of_its_own(frame: pd.DataFrame) -> pd.Series:
    """Eager rows in a storage dtype; TF32 rows store float32 and use the same memory as float32."""
    return _is_eager(frame) & frame["dtype"].isin(STORED_DTYPES)


TABLES = (
    TableGroup("A1", "Plain PyTorch attention", _by_dtype(_plain, _is_eager), Owed(_is_eager)),
    TableGroup("A2", "The same compiled, and in other numerics", beside_tables, Owed(_is_beside)),
    TableGroup("", "What bounds the forward", bound_tables),
    TableGroup(
        "A3", "The smallest attention that runs out of memory", limit_table, Owed(stem=LIMIT)
    ),
    TableGroup(
        "A4",
        "Memory of attention, step by step",
        _by_dtype(_memory, _has_memory_of_its_own),
        Owed(_has_memory_of_its_own),
    ),
)
