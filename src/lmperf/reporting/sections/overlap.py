"""The overlap ledger: how much of the communication of a step runs beside computation (D3)."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from lmperf.names import implementation_words
from lmperf.reporting.evidence import Evidence, having, matching, some
from lmperf.reporting.words import sig

LEDGER = "distributed_overlap"
CELL = ["size", "context_length", "batch", "ranks", "dtype"]
LINE = [*CELL, "implementation"]
MOST_LONGER = 0.2  # what a step hides that is longer under the profiler is that of another step
WIDEST = 0.2  # widest interval of a hidden share that a sentence may name
TIMELINES = ("flat", "overlapped")
LANES = {"computation": "blue", "communication": "orange"}


def matched(rows: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """The valid row of each line's cell and strategy, indexed like the lines; else NaN."""
    return matching(lines, rows[rows["state"].isna()], LINE)


def ledger(evidence: Evidence) -> pd.DataFrame:
    """The rows of the ledger, with columns on how far the profiled step is from the timed one.

    idle: share of the profiled step in which a rank neither computes nor communicates.
    longer: by which fraction it is longer than the timed step. tells: see `tells`.
    """
    rows = evidence.rows(LEDGER)
    rows = rows[rows["table"].isna() | (rows["table"] == "ledger")]
    timed = matched(evidence.rows("distributed"), rows)
    rows = rows.assign(
        idle=1 - (rows["compute_ms"] + rows["exposed_ms"]) / rows["step_ms"],
        longer=rows["step_ms"] / timed["ms"].astype(float) - 1,
        waits=timed["waits"].eq(True),
    )
    return rows.assign(tells=tells(rows))


def tells(rows: pd.DataFrame) -> pd.Series:
    """Whether a profiled step tells what the timed step hides.

    It does not if the timed step waits for the CPU, if the profiler makes it much longer, or if
    the hidden share varies from step to step.
    """
    width = rows["hidden_share_high"] - rows["hidden_share_low"]
    near = (rows["longer"] <= MOST_LONGER) & (width <= WIDEST)
    return rows["holds"] & near & ~rows["waits"]


def timelines(evidence: Evidence, cell: dict) -> dict[str, pd.DataFrame]:
    """Strategy -> intervals of computation and communication of one step."""
    rows = having(evidence.rows(LEDGER), table="timeline", **cell)
    found = {name: having(rows, implementation=name) for name in TIMELINES}
    found = {name: spans for name, spans in found.items() if len(spans)}
    return some(found, "no timeline of a step")


def span_records(found: dict[str, pd.DataFrame]) -> Iterator[dict]:
    """The bars of the figure: an interval each, in milliseconds from the beginning of the step."""
    for name, spans in found.items():
        for lane, starts, ends in spans[["lane", "starts_ms", "ends_ms"]].itertuples(index=False):
            length = f"{sig(ends - starts)} ms"
            panel = implementation_words(name)
            yield {"panel": panel, "name": lane, "starts": starts, "ends": ends, "value": length}
