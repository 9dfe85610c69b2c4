"""The interactive figure of memory: tensors over a train step, and its peaks by rung."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.charts import Spec, area_chart, bar_chart
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.end_to_end.chart import on_one_line
from lmperf.reporting.sections.end_to_end.figure import labels
from lmperf.reporting.sections.end_to_end.waterfall import BY_NAME
from lmperf.reporting.sections.memory.figure import (
    ADDED,
    KEPT,
    LEAST_SHARE,
    LOOKS,
    cell_words,
    curves_of,
    rungs_of,
    title,
    words_of,
)
from lmperf.reporting.sections.memory.peaks import MIB_IN_GIB
from lmperf.reporting.sections.memory.timeline import levels


def charts(evidence: MachineEvidence) -> list[Spec]:
    """Tensors by category over time, and the peak of a step with each rung of the ladder."""
    curves, rungs = curves_of(evidence), rungs_of(evidence)
    heading = title(curves, rungs)
    found = [_over_time(heading, curves)] if curves else []
    rungs = rungs[gates.shown(rungs)] if len(rungs) else rungs
    return [
        *found,
        *(
            [_peaks("" if found else heading, rungs, on_one_line(labels(evidence, rungs)))]
            if len(rungs)
            else []
        ),
    ]


def _over_time(heading: str, curves: dict) -> Spec:
    whole = {dtype: levels(curve) / MIB_IN_GIB for dtype, (curve, _) in curves.items()}
    least = LEAST_SHARE * max(level.sum(axis=1).max() for level in whole.values())
    words, records = words_of(curves), []
    for dtype, level in whole.items():
        level = level[[name for name in level if level[name].max() >= least]]
        above = level.cumsum(axis=1)
        at = curves[dtype][0]["position"]
        records += [
            {
                "panel": f"{cell_words(curves[dtype][0])}, {dtype_words(dtype)}",
                "name": words[name],
                "x": float(x),
                "below": float(top - size),
                "above": float(top),
                "value": f"{significant(size)} GiB",
            }
            for name in level
            for x, size, top in zip(at, level[name], above[name], strict=True)
        ]
    drawn = {record["name"] for record in records}
    named = {words[name]: colour for name, (colour, _) in LOOKS.items()}
    colours = {name: colour for name, colour in named.items() if name in drawn}
    axes = ("allocations and releases (not time)", "tensors (GiB)")
    return area_chart(heading, records, colours, axes)


def _peaks(heading: str, rungs: pd.DataFrame, words: dict[str, str]) -> Spec:
    records = []
    for size in in_order("size", rungs["size"]):
        rows = having(rungs, size=size)
        rows = rows.sort_values("implementation", key=lambda names: names.map([*BY_NAME].index))
        for row in rows.to_dict("records"):
            panel = f"{cell_words(rows)}, batch {row['batch']:g}"
            records += _bars(panel, words[row["implementation"]], row)
    colours = {KEPT: "grey", ADDED: "violet"}
    return bar_chart(heading, records, colours, "peak (GiB)", lines=[*words.values()])


def _bars(panel: str, line: str, row: dict) -> list[dict]:
    shown = {
        "panel": panel,
        "line": line,
        "value": f"peak {significant(row['peak'])} GiB, {significant(row['kept'])} of them {KEPT}",
        "interval": "none, one step",
        "n": 1,
        "marks": "none",
    }
    parts = {KEPT: row["kept"], ADDED: row["peak"] - row["kept"]}
    return [{**shown, "name": name, "y": float(size)} for name, size in parts.items()]
