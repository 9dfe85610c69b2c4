"""The table of the filled grid's sustained rates: calls back to back beside single calls."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.tables import from_frame, number_cell
from lmperf.results import Table

_CELL = ["d_head", "mask", "seq_len", "phase"]
NOTE = (
    "Sustained: median of calls back to back for seconds, as in training, with new inputs between"
    " the calls, whose time does not count; clock and power are those meanwhile. Lost: share of the"
    " single calls' rate."
)


def sustained_tables(evidence: MachineEvidence) -> list[Table]:
    """A table with a line per cell, phase and implementation; none without sustained times."""
    if evidence.frame(kinds.STEM) is None or "sustained_ms" not in kinds.rows(evidence):
        return []
    frame = kinds.rows(evidence)
    rows = frame[kinds.filled(frame) & frame["sustained_ms"].notna()]
    if rows.empty:
        return []
    names = in_order("implementation", rows["implementation"])
    rows = rows.assign(order=rows["implementation"].map(names.index))
    rows = rows.sort_values([*_CELL[:3], "phase", "order"], kind="stable")
    caption = "The filled grid's longest cells, single calls and back to back"
    headers = {
        "seq_len": "length",
        "single": "single (TFLOP/s)",
        "sustained": "sustained (TFLOP/s)",
        "clock": "clock (MHz)",
        "power": "power (W)",
    }
    columns = [*_CELL, "implementation", "single", "sustained", "lost", "clock", "power"]
    lines = pd.DataFrame([_line(row) for _, row in rows.iterrows()], columns=columns)
    return [from_frame(caption, lines, NOTE, right=columns[5:], headers=headers)]


def _line(row: pd.Series) -> dict:
    single, sustained = (row["flops"] / row[ms] / 1e9 for ms in ("median_ms", "sustained_ms"))
    cells = {
        "single": number_cell(single, significant),
        "sustained": number_cell(sustained, significant),
        "lost": number_cell(1 - sustained / single, percent),
        "clock": number_cell(row["sustained_mhz"], significant),
        "power": number_cell(row["sustained_w"], significant),
    }
    # The command below the table measures a row that one of these cells has as its key.
    return {
        **row[_CELL[:3]].to_dict(),
        "phase": phase_words(row["phase"]),
        "implementation": implementation_words(row["implementation"]),
        **{name: replace(cell, row=row.get("key")) for name, cell in cells.items()},
    }
