"""The interactive figure of the section: timelines of two strategies, and what each one hides."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting.charts import Spec, bar_chart, span_chart
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.sections.distributed import rows
from lmperf.reporting.sections.distributed.figure import (
    EXPOSED,
    LANES,
    REST,
    largest,
    spans_of,
    title,
)


def charts(evidence: MachineEvidence) -> list[Spec]:
    """Timelines of a step, and the exposed communication of every strategy, at the largest size."""
    frame = largest(rows.ledger(evidence))
    if frame.empty:
        return []
    spans = spans_of(evidence, frame)
    found = [_timelines(title(frame), spans)] if spans else []
    return [*found, _bars("" if found else title(frame), frame)]


def _timelines(heading: str, spans: dict[str, pd.DataFrame]) -> Spec:
    records = [
        {
            "panel": implementation_words(name),
            "name": row["lane"],
            "starts": float(row["starts_ms"]),
            "ends": float(row["ends_ms"]),
            "value": f"{significant(row['ends_ms'] - row['starts_ms'])} ms",
        }
        for name, intervals in spans.items()
        for row in intervals.to_dict("records")
    ]
    colours = {lane: colour for lane, (colour, _) in LANES.items()}
    return span_chart(heading, records, colours, "ms from the beginning of the step")


def _bars(heading: str, frame: pd.DataFrame) -> Spec:
    names = in_order("implementation", frame["implementation"])
    decided = rows.decided(frame).index
    records = []
    for name in names:
        for index, row in having(frame, implementation=name).iterrows():
            records += _parts(row, index in decided)
    return bar_chart(heading, records, {REST: "grey", EXPOSED: "orange"}, "profiled step (ms)")


def _parts(row: pd.Series, is_decided: bool) -> list[dict]:
    """The two parts of a strategy's bar."""
    step, exposed, hidden = row["step_ms"], row["exposed_ms"], row["hidden_share"]
    said = "none to hide" if pd.isna(hidden) else f"{percent(hidden, 0)} hidden"
    said = said if is_decided else "hidden: not decided"
    shown = {
        "panel": "every strategy",
        "line": implementation_words(row["implementation"]),
        "value": f"step {significant(step)} ms, exposed {significant(exposed)} ms, {said}",
        "interval": "exposed {} to {} ms".format(
            *(significant(row[f"exposed_{end}_ms"]) for end in ("low", "high"))
        ),
        "n": int(row["steps"]),
        "marks": "none",
    }
    parts = {REST: step - exposed, EXPOSED: exposed}
    return [{**shown, "name": name, "y": float(ms)} for name, ms in parts.items()]
