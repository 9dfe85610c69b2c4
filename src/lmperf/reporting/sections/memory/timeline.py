"""Y2: the peak of the picture; Y3: largest tensors; Y4: residual stream; Y5: components."""

from __future__ import annotations

import pandas as pd

from lmperf.names import axis_words, dtype_words, in_order, phase_words
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


def highest(curve: pd.DataFrame) -> pd.DataFrame:
    """The point of each curve at which most is alive."""
    if curve.empty:
        return curve
    total = levels(curve).sum(axis=1)
    return curve.loc[total.groupby([curve[name] for name in CELL], sort=False).idxmax()]


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


def _cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Size, context, batch, numerics and phase of each row, in words."""
    words = frame[CELL].assign(
        dtype=frame["dtype"].map(dtype_words), phase=frame["phase"].map(phase_words)
    )
    return words.rename(columns={**{name: axis_words(name) for name in CELL}, "dtype": "numerics"})


def picture_table(evidence: MachineEvidence) -> list[Lines]:
    """Y2: the highest point of each curve, where it lies and what is alive; what could not run."""
    tops, phases = highest(observed(evidence, "curve")), observed(evidence, "phase")
    if tops.empty:
        return []
    table = _cells(tops).assign(
        **{"peak in": [_where(top, phases) for _, top in tops.iterrows()]},
        **{f"{name} (MiB)": column.map(significant) for name, column in levels(tops).items()},
        **{"all tensors (MiB)": [significant(v, 4) for v in tops["recorded_mib"]]},
        **{"peak, measured apart (MiB)": [significant(v, 4) for v in tops["peak_mib"]]},
    )
    frame = evidence.frame(STEM)
    failed = in_reading_order(frame[~gates.shown(frame)], first=CELL)
    failed = _cells(failed).assign(**{"peak in": status_words(failed)})
    table = pd.concat([table, failed]).astype(object)
    note = "A peak that an allocator measured holds more than tensors: workspaces of libraries."
    return [Lines("What is alive at the peak", table.where(table.notna(), EMPTY), note)]


def largest_table(evidence: MachineEvidence) -> list[Lines]:
    """Y3: the largest tensors at the peak; those that are alike share a line."""
    blocks = observed(evidence, "block")
    if blocks.empty:
        return []
    table = _cells(blocks).assign(
        tensor=blocks["tensor"],
        size_mib=blocks["size_mib"].map(significant),
        category=blocks["name"],
        made_in=blocks["made_in"].fillna("before"),
        by=blocks["frame"].fillna(EMPTY),
    )
    table = table.groupby(list(table.columns), sort=False).size().reset_index(name="how many")
    table = table.rename(columns={"size_mib": "each (MiB)", "made_in": "made in"})
    ranks = blocks.groupby(CELL).size().max()
    return [Lines(f"The {ranks} largest tensors at the peak", table)]


def stream_table(evidence: MachineEvidence) -> list[Lines]:
    """Y4: one tensor of the residual stream, in closed form and as it lies in memory."""
    rows = observed(evidence, "stream").drop_duplicates(["size", "context_length", "batch"])
    if rows.empty:
        return []
    table = pd.DataFrame(
        {
            "size": rows["size"],
            "tensor": rows["tensor"],
            "closed form (MiB)": [significant(v, 4) for v in rows["predicted_mib"]],
            "measured (MiB)": [significant(v, 4) for v in rows["size_mib"]],
        }
    )
    return [Lines("Closed form: 4 bytes an element", table)]


def component_tables(evidence: MachineEvidence) -> list[Lines]:
    """Y5: by category at the peak, predicted and measured; then all that is predicted alone."""
    frame = evidence.frame(peaks.STEM)
    if frame is None:
        return each(_measured_components(evidence))
    kinds = [
        (phase, dtype)
        for phase in in_order("phase", frame["phase"])
        for dtype in in_order("dtype", frame["dtype"])
    ]
    return each(_measured_components(evidence), *(_predicted(frame, *kind) for kind in kinds))


def _measured_components(evidence: MachineEvidence) -> Lines | None:
    rows = observed(evidence, "category")
    if rows.empty:
        return None
    cells = rows.drop_duplicates(CELL)
    predicted, measured = by_category(rows, "predicted_mib"), by_category(rows, "size_mib")
    table = _cells(cells)
    for name in measured.columns:
        pairs = zip(predicted[name], measured[name], strict=True)
        table[f"{name} (MiB)"] = [f"{significant(p, 4)} / {significant(m, 4)}" for p, m in pairs]
    return Lines("Memory at the peak by component", table, "Predicted / measured.")


def by_category(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """One row a cell, in order, one column a category.

    A forward keeps no activations: the weights that autocast has cast, which the prediction counts
    as such, are temporary there, as the recording has them.
    """
    wide = rows.pivot_table(index=CELL, columns="name", values=column)
    wide = wide.reindex(pd.MultiIndex.from_frame(rows[CELL].drop_duplicates()))
    wide = wide.reindex(columns=[name for name in CATEGORIES if name in wide])
    forward = wide.index.get_level_values("phase") == "forward"
    if {"activations", "temporary"} <= set(wide.columns):
        wide.loc[forward, "temporary"] += wide.loc[forward, "activations"]
        wide.loc[forward, "activations"] = 0.0
    return wide


def _predicted(frame: pd.DataFrame, phase: str, dtype: str) -> Lines | None:
    rows = having(frame, phase=phase, dtype=dtype)
    columns = [
        Beside(f"{name.replace('_', ' ')} (MiB)", rows[f"{name}_mib"].map(significant))
        for name in PREDICTED
        if (rows[f"{name}_mib"] > 0).any()
    ]
    caption = f"Predicted by component, {phase_words(phase)}, {dtype_words(dtype)}"
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
