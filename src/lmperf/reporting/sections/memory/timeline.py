"""Y2: the peak of the picture; Y3: largest tensors; Y4: residual stream; Y5: components."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having, in_reading_order
from lmperf.reporting.numbers import EMPTY, percent, significant
from lmperf.reporting.sections.memory import peaks
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.tables import Lines, Owed, Table, status_words

STEM = "memory_timeline"
CELL = ["size", "context_length", "batch", "dtype", "phase"]
CATEGORIES = ("parameters", "optimizer", "inputs", "gradients", "activations", "temporary")
PREDICTED = (
    *("parameters", "weight_copies", "gradients", "optimizer", "activations", "temporary"),
    *("inputs", "workspace"),
)
ALIVE = "What is alive at the peak"
FLOAT32_BYTES, BYTES_OF_003 = 4, 8


def observed(evidence: MachineEvidence, table: str) -> pd.DataFrame:
    """The rows of one kind of observation, in reading order; empty where there are none."""
    frame = evidence.frame(STEM)
    if frame is None:
        return pd.DataFrame(columns=[*CELL, "position", "name"])
    frame = having(frame[gates.shown(frame)], table=table).sort_values("position", kind="stable")
    return in_reading_order(frame, first=CELL)


def levels(curve: pd.DataFrame) -> pd.DataFrame:
    """MiB of each category at each point of a curve."""
    return curve[[f"{name}_mib" for name in CATEGORIES]].set_axis(CATEGORIES, axis=1)


def spans(phases: pd.DataFrame) -> list[tuple[str, float, float]]:
    """(name, start, end) of each phase of one call, in order, from where it begins."""
    phases = phases.sort_values("position", kind="stable")
    starts = phases["position"].astype(float).tolist()
    return list(zip(phases["name"][:-1], starts, starts[1:], strict=False))


def _where(top: pd.Series, phases: pd.DataFrame) -> str:
    """The phase in which a point of a curve lies: ``backward, 0.2 % through``."""
    at = top["position"]
    for name, start, end in spans(having(phases, **top[CELL])):
        if start <= at < end:
            return f"{name}, {percent((at - start) / (end - start))} through"
    return EMPTY


def picture_table(evidence: MachineEvidence) -> list[Lines]:
    """Y2: the highest point of each curve, where it lies and what is alive; what could not run."""
    curve, phases = observed(evidence, "curve"), observed(evidence, "phase")
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    failed = frame[~gates.shown(frame)]
    if curve.empty:
        return each(side_by_side(ALIVE, failed, CELL, [Beside("status", status_words(failed))]))
    total = levels(curve).sum(axis=1)
    tops = curve.loc[total.groupby([curve[name] for name in CELL], sort=False).idxmax()]
    where = pd.Series([_where(top, phases) for _, top in tops.iterrows()], tops.index, object)
    columns = [
        Beside("peak in", pd.concat([where, status_words(failed)])),
        *(Beside(f"{name} (MiB)", mib.map(significant)) for name, mib in levels(tops).items()),
        Beside("all tensors (MiB)", _precise(tops["recorded_mib"])),
        Beside("peak, measured apart (MiB)", _precise(tops["peak_mib"])),
    ]
    note = "A peak that an allocator measured holds more than tensors: workspaces of libraries."
    calls = pd.concat([tops, failed])
    return each(side_by_side(ALIVE, calls, CELL, columns, note))


def _precise(mib: pd.Series) -> pd.Series:
    return mib.map(lambda value: significant(value, 4))


def largest_table(evidence: MachineEvidence) -> list[Lines]:
    """Y3: the largest tensors at the peak; those that are alike share a line."""
    blocks = observed(evidence, "block").rename(columns={"position": "rank"})
    if blocks.empty:
        return []
    same = [*CELL, "tensor", "size_mib", "name", "made_in", "frame"]
    first = blocks.drop_duplicates(same)
    columns = [
        Beside("tensor", first["tensor"]),
        Beside("each (MiB)", first["size_mib"].map(significant)),
        Beside("category", first["name"]),
        Beside("made in", first["made_in"].fillna("before")),
        Beside("by", first["frame"].fillna(EMPTY)),
        Beside("how many", blocks.groupby(same, dropna=False)["rank"].transform("size")),
    ]
    caption = f"The {blocks['rank'].max():g} largest tensors at the peak"
    return each(side_by_side(caption, first, [*CELL, "rank"], columns))


def stream_table(evidence: MachineEvidence) -> list[Lines]:
    """Y4: one tensor of the residual stream, in closed form and as it lies in memory."""
    rows = observed(evidence, "stream")
    if rows.empty:
        return []
    each_element = FLOAT32_BYTES * rows["size_mib"] / rows["predicted_mib"]
    columns = [
        Beside("tensor", rows["tensor"]),
        Beside("closed form (MiB)", _precise(rows["predicted_mib"])),
        Beside("measured (MiB)", _precise(rows["size_mib"])),
        Beside("measured (bytes an element)", each_element.map(lambda size: f"{size:g}")),
    ]
    note = (
        f"Closed form: {FLOAT32_BYTES} bytes an element; a published write-up (003) counts"
        f" {BYTES_OF_003}."
    )
    return each(side_by_side("One float32 tensor", rows, peaks.CELL, columns, note))


def component_tables(evidence: MachineEvidence) -> list[Lines]:
    """Y5: by category at the peak, predicted and measured; then all that is predicted alone."""
    frame = evidence.frame(peaks.STEM)
    predicted = []
    if frame is not None:
        for phase in in_order("phase", frame["phase"]):
            rows = having(frame, phase=phase)
            predicted += [_predicted(rows, d) for d in in_order("dtype", rows["dtype"])]
    return each(_measured_components(evidence), *predicted)


def _measured_components(evidence: MachineEvidence) -> Lines | None:
    """Both by category.

    A forward keeps no activations: the weights that autocast has cast, which the prediction counts
    as such, are temporary there, as the recording has them.
    """
    rows = observed(evidence, "category")
    if rows.empty:
        return None
    cast = (rows["phase"] == "forward") & (rows["name"] == "activations")
    rows = rows.assign(name=rows["name"].mask(cast, "temporary"))
    columns = []
    for name in CATEGORIES:
        sums = having(rows, name=name).groupby(CELL)[["predicted_mib", "size_mib"]]
        both = sums.transform("sum").map(lambda mib: significant(mib, 4)).astype(str)
        columns.append(Beside(f"{name} (MiB)", both["predicted_mib"] + " / " + both["size_mib"]))
    note = "Predicted / measured."
    return side_by_side("Memory at the peak by component", rows, CELL, columns, note)


def _predicted(rows: pd.DataFrame, dtype: str) -> Lines | None:
    rows = having(rows, dtype=dtype)
    columns = [
        Beside(f"{name.replace('_', ' ')} (MiB)", rows[f"{name}_mib"].map(significant))
        for name in PREDICTED
        if (rows[f"{name}_mib"] > 0).any()
    ]
    words = peaks.call_words(rows["phase"].iloc[0])
    caption = f"Predicted by component, {words}, {dtype_words(dtype)}"
    return side_by_side(caption, rows, peaks.CELL, columns)


def _owed(kind: str) -> Owed:
    """Rests on the rows of a kind, and on calls that failed or lack, which have none."""

    def where(rows: pd.DataFrame) -> pd.Series:
        kinds = rows.get("table", pd.Series(None, rows.index, object))
        return kinds.isin([kind]) | kinds.isna()

    return Owed(stem=STEM, where=where)


TABLES = (
    Table("Y2", "Memory over time", picture_table, _owed("curve")),
    Table("Y3", "Largest allocations", largest_table, _owed("block")),
    Table("Y4", "One tensor of the residual stream", stream_table, _owed("stream")),
    Table("Y5", "Memory by component", component_tables, _owed("category")),
)
