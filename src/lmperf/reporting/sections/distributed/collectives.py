"""Table D1 and its finding: collectives between ranks by size of the message, beside a copy."""

from __future__ import annotations

import pandas as pd

from lmperf.distributed.cost import Estimate
from lmperf.names import bytes_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import SECTION, Finding, NotMeasured, rows_of, sound
from lmperf.reporting.numbers import finite, percent, significant, whole_percent
from lmperf.reporting.sections.distributed.links import (
    ALL_REDUCE,
    CELL,
    COPY,
    LIBRARY,
    STEM,
    lines_of,
    link_gbps,
    with_rates,
)
from lmperf.reporting.side_by_side import each, rate, side_by_side, text, time
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    beside,
    kernel_note,
    kernel_times,
    number_cells,
    value_cells,
)
from lmperf.results import Cell, Table

COPY_WORDS = "copy to a rank"
# An all-reduce that reaches this share of a copy between two ranks uses the link well.
NEAR_COPY = 0.75
RATES = (
    "GB/s as nccl-tests define them: algorithm, the message over the median time; bus, what each"
    " rank of a ring sends over it. Message: each rank's buffer (all-reduce), the gathered buffer"
    " (all-gather), the buffer to reduce (reduce-scatter). Of copy: bus over the best copy between"
    " two ranks. Host: until a call returns to the program. Wrong elements: those that differ from"
    " the expected result."
)


def rates(evidence: MachineEvidence) -> list[Table]:
    """Tables D1, one for each dtype and number of ranks: times and rates by size of the message."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    link = link_gbps(frame)
    frame = _named(with_rates(having(frame, implementation=LIBRARY)))
    return each(
        *(_rates(part, link) for _, _, part in groups(frame, "dtype", "ranks")), _fits(evidence)
    )


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with another name for the copy, which is not that of the ceilings."""
    return frame.assign(operation=frame["operation"].replace(COPY, COPY_WORDS))


def _rates(frame: pd.DataFrame, link: float | None) -> Table | None:
    algorithm = value_cells(frame, frame["algorithm_gbps"])
    wrong = number_cells(frame["error_wrong_elements"], "{:,.0f}".format)
    columns = [
        time("time", kernel_times(frame), "forward"),
        time("host", value_cells(frame, frame["host_ms"]), "host"),
        rate(
            "algorithm / bus",
            beside(algorithm, frame["bus_gbps"].where(gates.shown(frame))),
            *("algorithm", "GB/s"),
            second="bus bandwidth",
        ),
        text("wrong elements", wrong, "wrong_elements"),
    ]
    if link:
        share = value_cells(frame, 100 * frame["bus_gbps"] / link, whole_percent)
        columns.insert(3, rate("bus", share, "share_of_copy", "% of copy", "whole_percent"))
    return side_by_side("Collectives", frame, CELL, columns, f"{kernel_note(frame)} {RATES}")


def _fits(evidence: MachineEvidence) -> Table | None:
    """Overhead of a call and bus bandwidth, fitted to the times of all sizes, with intervals."""
    lines, frame = lines_of(evidence, trusted=False), evidence.frame(STEM)
    frame = having(frame, implementation=LIBRARY).drop_duplicates(["operation", "dtype", "ranks"])
    found = {
        row.Index: lines.get((row.operation, row.dtype, int(row.ranks)))
        for row in frame.itertuples()
    }
    fitted = {row: line for row, line in found.items() if line is not None}
    if not fitted:
        return None
    frame = frame.loc[[*fitted]]
    overheads = [(line.overhead, 1e6) for line in fitted.values()]
    buses = [(line.rate, 1e-9) for line in fitted.values()]
    spreads = pd.Series([line.spread for line in fitted.values()], frame.index)
    columns = [
        time("overhead of a call", _estimates(frame, overheads), "overhead", "us"),
        rate("bus", _estimates(frame, buses), "bus", "GB/s"),
        text("error of the fit", number_cells(spreads, percent), "spread", "percent"),
    ]
    note = (
        "Time = overhead + bytes that a rank of a ring sends / bus bandwidth, fitted to all sizes"
        " by relative errors; in brackets the 95 % interval. Error: standard deviation. Single"
        " sizes can be off by more: read them off the tables above."
    )
    return side_by_side(
        "Fitted overhead and bus bandwidth",
        _named(frame),
        ["operation", "dtype", "ranks"],
        columns,
        note,
    )


def _estimates(frame: pd.DataFrame, found: list[tuple[Estimate, float]]) -> pd.Series:
    """Cells ``20.1 (18.9-21.4)`` of estimates, each with the factor to the unit of the column."""
    made = []
    for estimate, unit in found:
        numbers = [unit * end for end in (estimate.value, estimate.low, estimate.high)]
        value, low, high = map(significant, numbers)
        made.append(Cell(f"{value} ({low}-{high})", *map(finite, numbers)))
    return pd.Series(made, frame.index, dtype=object)


def _reached(evidence: MachineEvidence) -> dict:
    """Bus bandwidth of the largest all-reduce over the most ranks, and the overhead of a call."""
    rows = with_rates(rows_of(evidence, STEM, implementation=LIBRARY, operation=ALL_REDUCE))
    link = link_gbps(sound(evidence, STEM))
    if link is None:
        raise NotMeasured
    rows = having(rows, ranks=rows["ranks"].max())
    best = rows.loc[having(rows, message_bytes=rows["message_bytes"].max())["bus_gbps"].idxmax()]
    line = lines_of(evidence, trusted=True).get((ALL_REDUCE, best["dtype"], int(best["ranks"])))
    if line is None:
        raise NotMeasured
    half = line.overhead.value * line.rate.value / line.factor
    return {
        "ranks": int(best["ranks"]),
        "message": bytes_words(best["message_bytes"]),
        "bus": best["bus_gbps"],
        "share": best["bus_gbps"] / link,
        "overhead": 1e6 * line.overhead.value,
        "half": bytes_words(float(f"{half:.1e}")),
    }


_REACH = (
    "All-reduces of {{ message }} over {{ ranks }} ranks reach {{ bus | sig }} GB/s (bus)."
    " That is {{ share | percent }} of the rate of a copy between two ranks"
)
_CALL = (
    " Below {{ half }}, the fixed overhead of a call ({{ overhead | sig }} us) exceeds the"
    " transfer: merge such messages."
)
FINDINGS = (
    Finding(
        name="collectives_rate",
        question="Which share of the link does a long all-reduce use, and what does a call cost?",
        values=_reached,
        answer=lambda v: "near" if v["share"] >= NEAR_COPY else "far",
        answers={
            "near": _REACH + ": the link is used well." + _CALL,
            "far": _REACH + "." + _CALL,
        },
        place=SECTION,
    ),
)
TABLES = (
    TableGroup(
        "D1",
        "Collectives between ranks, and a copy",
        rates,
        Owed(where=lambda frame: frame["implementation"] == LIBRARY, stem=STEM, cell=CELL),
    ),
)
