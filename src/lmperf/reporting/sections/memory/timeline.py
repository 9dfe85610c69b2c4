"""Tables Y2 to Y5 of the memory section.

Y2: when each call reaches its peak. Y3: largest tensors at the peak. Y4: a tensor of the residual
stream. Y5: memory by component.
"""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having, in_reading_order
from lmperf.reporting.numbers import EMPTY, percent, precise
from lmperf.reporting.sections.memory import peaks
from lmperf.reporting.side_by_side import each, memory, side_by_side, text
from lmperf.reporting.tables import Owed, TableGroup, beside, number_cells, status_cells
from lmperf.results import Table

STEM = "memory_timeline"
CELL = ["size", "context_length", "batch", "dtype", "phase"]
CATEGORIES = ("parameters", "optimizer", "inputs", "gradients", "activations", "temporary")
PREDICTED = (
    *("parameters", "weight_copies", "gradients", "optimizer", "activations", "temporary"),
    *("inputs", "workspace"),
)
PEAK = "The peak of each call"
FLOAT32_BYTES, BYTES_OF_003 = 4, 8


def observed(evidence: MachineEvidence, table: str) -> pd.DataFrame:
    """The rows whose column ``table`` has a given value (``curve``, ...), in reading order."""
    frame = evidence.frame(STEM)
    if frame is None:
        return pd.DataFrame(columns=[*CELL, "position", "name"])
    frame = having(frame[gates.shown(frame)], table=table).sort_values("position", kind="stable")
    return in_reading_order(frame, first=CELL)


def levels(curve: pd.DataFrame) -> pd.DataFrame:
    """MiB of each category of tensors at each point of a memory curve."""
    return curve[[f"{name}_mib" for name in CATEGORIES]].set_axis(CATEGORIES, axis=1)


def spans(phases: pd.DataFrame) -> list[tuple[str, float, float]]:
    """(name, start, end) of each phase of one call, in order."""
    phases = phases.sort_values("position", kind="stable")
    starts = phases["position"].astype(float).tolist()
    return list(zip(phases["name"][:-1], starts, starts[1:], strict=False))


def _where(top: pd.Series, phases: pd.DataFrame) -> str:
    """When the highest point of a curve occurs: ``backward, 0.2 % through``."""
    at = top["position"]
    for name, start, end in spans(having(phases, **top[CELL])):
        if start <= at < end:
            return f"{name}, {percent((at - start) / (end - start))} through"
    return EMPTY


def picture_table(evidence: MachineEvidence) -> list[Table]:
    """Table Y2: the highest point of each call's memory curve, and when in the call it occurs.

    Calls that failed have their status. Table Y5 shows which tensors are alive at that point.
    """
    curve, phases = observed(evidence, "curve"), observed(evidence, "phase")
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    failed = frame[~gates.shown(frame)]
    if curve.empty:
        status = text("status", status_cells(failed), "status")
        return each(side_by_side(PEAK, failed, CELL, [status]))
    total = levels(curve).sum(axis=1)
    tops = curve.loc[total.groupby([curve[name] for name in CELL], sort=False).idxmax()]
    where = pd.Series([_where(top, phases) for _, top in tops.iterrows()], tops.index, object)
    columns = [
        text("peak in", pd.concat([where, status_cells(failed)]), "peak_in"),
        memory("all tensors", number_cells(tops["recorded_mib"], precise), "tensors"),
        memory("peak, measured apart", number_cells(tops["peak_mib"], precise), "peak"),
    ]
    note = "The allocator's peak includes workspaces of libraries, which are not tensors."
    calls = pd.concat([tops, failed])
    return each(side_by_side(PEAK, calls, CELL, columns, note))


def largest_table(evidence: MachineEvidence) -> list[Table]:
    """Table Y3: the largest tensors alive at the peak; equal tensors share a line."""
    blocks = observed(evidence, "block").rename(columns={"position": "rank"})
    if blocks.empty:
        return []
    same = [*CELL, "tensor", "size_mib", "name", "made_in", "frame"]
    first = blocks.drop_duplicates(same)
    columns = [
        text("tensor", first["tensor"], "tensor"),
        memory("each", number_cells(first["size_mib"]), "tensor.size"),
        text("category", first["name"], "category"),
        text("made in", first["made_in"].fillna("before"), "made_in"),
        text("by", first["frame"].fillna(EMPTY), "made_by"),
        text("how many", blocks.groupby(same, dropna=False)["rank"].transform("size"), "count"),
    ]
    caption = f"The {blocks['rank'].max():g} largest tensors at the peak"
    return each(side_by_side(caption, first, [*CELL, "rank"], columns))


def stream_table(evidence: MachineEvidence) -> list[Table]:
    """Table Y4: predicted and measured size of one tensor of the residual stream."""
    rows = observed(evidence, "stream")
    if rows.empty:
        return []
    each_element = FLOAT32_BYTES * rows["size_mib"] / rows["predicted_mib"]
    bytes_each = number_cells(each_element, "{:g}".format)
    columns = [
        text("tensor", rows["tensor"], "tensor"),
        memory("closed form", number_cells(rows["predicted_mib"], precise), "predicted"),
        memory("measured", number_cells(rows["size_mib"], precise), "measured"),
        memory("measured", bytes_each, "measured.per_element", "bytes an element"),
    ]
    note = (
        f"Closed form: {FLOAT32_BYTES} bytes per element; a published write-up (003) counts"
        f" {BYTES_OF_003}."
    )
    return each(side_by_side("One float32 tensor", rows, peaks.CELL, columns, note))


def component_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables Y5: predicted and measured memory at the peak by category, then predictions.

    The tables after the first hold predictions for train steps only, one table per dtype.
    """
    frame = evidence.frame(peaks.STEM)
    steps = having(frame, phase="train_step") if frame is not None else pd.DataFrame({"dtype": []})
    dtypes = in_order("dtype", steps["dtype"])
    return each(_measured_components(evidence), *(_predicted(steps, dtype) for dtype in dtypes))


def _measured_components(evidence: MachineEvidence) -> Table | None:
    """The first table Y5: predicted and measured memory at the peak by category of tensors.

    A forward without gradients keeps no activations. The prediction counts weights cast by autocast
    as activations; the recording and this table count them as temporary.
    """
    rows = observed(evidence, "category")
    if rows.empty:
        return None
    cast = (rows["phase"] == "forward") & (rows["name"] == "activations")
    rows = rows.assign(name=rows["name"].mask(cast, "temporary"))
    columns = []
    for name in CATEGORIES:
        sums = having(rows, name=name).groupby(CELL)[["predicted_mib", "size_mib"]]
        sums = sums.transform("sum")
        cells = beside(number_cells(sums["predicted_mib"], precise), sums["size_mib"], precise)
        columns.append(memory(name, cells, f"{name}.predicted", second="measured"))
    note = "Predicted / measured."
    return side_by_side("Memory at the peak by component", rows, CELL, columns, note)


def _predicted(rows: pd.DataFrame, dtype: str) -> Table | None:
    rows = having(rows, dtype=dtype)
    rows = rows[rows["predicted_mib"].notna()]
    if rows.empty:
        return None
    columns = [
        memory(name.replace("_", " "), number_cells(rows[f"{name}_mib"]), name)
        for name in PREDICTED
        if (rows[f"{name}_mib"] > 0).any()
    ]
    words = peaks.call_words(rows["phase"].iloc[0])
    caption = f"Predicted by component, {words}, {dtype_words(dtype)}"
    return side_by_side(caption, rows, peaks.CELL, columns)


def _owed(kind: str) -> Owed:
    """The rows that a table must show: those whose column ``table`` is ``kind``.

    Failed and missing calls have no value in that column; the table must show them, too.
    """

    def where(rows: pd.DataFrame) -> pd.Series:
        kinds = rows.get("table", pd.Series(None, rows.index, object))
        return kinds.isin([kind]) | kinds.isna()

    return Owed(stem=STEM, where=where)


TABLES = (
    TableGroup("Y2", "Memory over time", picture_table, _owed("curve")),
    TableGroup("Y3", "Largest allocations", largest_table, _owed("block")),
    TableGroup("Y4", "One tensor of the residual stream", stream_table, _owed("stream")),
    TableGroup("Y5", "Memory by component", component_tables, _owed("category")),
)
