"""Tables D1 and D15: collectives between ranks by size of the message, and two all-reduces.

The rate of the link is the best rate of a copy between two ranks. `lines_of` fits the overhead and
the bus bandwidth of each operation, from which D15 and D7 predict times.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lmperf.distributed.cost import (
    LEAST_SIZES,
    Estimate,
    Line,
    bus_factor,
    fit,
    predicted_all_reduces,
)
from lmperf.names import bytes_words, dtype_words, implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import SECTION, Finding, NotMeasured, measured, rows_of, sound
from lmperf.reporting.numbers import finite, percent, significant, whole_percent
from lmperf.reporting.side_by_side import (
    Beside,
    each,
    rate,
    side_by_side,
    speedup,
    text,
    time,
)
from lmperf.reporting.speedup import Series, resolved, speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    beside,
    kernel_note,
    kernel_times,
    number_cells,
    value_cells,
)
from lmperf.results import LOWER, TIME, Cell, Table
from lmperf.statistics import SAME

STEM = "collectives"
CELL = ["operation", "message_bytes", "dtype", "ranks"]
LIBRARY, COPY, ALL_REDUCE = "library", "copy", "all_reduce"
COPY_WORDS = "copy to a rank"
# The two all-reduces of D15.
PARTS, ROUND = "scatter_gather", "pass_round"
MS_PER_S = 1e3
# An all-reduce that reaches this share of a copy between two ranks uses the link well.
NEAR_COPY = 0.75
Key = tuple[str, str, int]  # operation, dtype, ranks

RATES = (
    "GB/s as nccl-tests define them: algorithm, the message over the median time; bus, what each"
    " rank of a ring sends over it. Message: each rank's buffer (all-reduce), the gathered buffer"
    " (all-gather), the buffer to reduce (reduce-scatter). Of copy: bus over the best copy between"
    " two ranks."
)


def with_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``algorithm_gbps`` and ``bus_gbps``, from their median times."""
    algorithm = frame["message_bytes"] / frame["median_ms"] / 1e6
    factors = [bus_factor(*pair) for pair in zip(frame["operation"], frame["ranks"], strict=True)]
    return frame.assign(algorithm_gbps=algorithm, bus_gbps=algorithm * factors)


def link_gbps(frame: pd.DataFrame) -> float | None:
    """The best rate of a copy between two ranks in GB/s; None if no copy was measured."""
    copies = having(frame[gates.shown(frame)], operation=COPY)
    rates = with_rates(copies)["bus_gbps"].dropna()
    return float(rates.max()) if len(rates) else None


def lines_of(evidence: MachineEvidence, trusted: bool) -> dict[Key, Line]:
    """(operation, dtype, ranks) -> fitted overhead and bus bandwidth of the library's operation.

    Of operations that were measured with enough sizes; empty without rows.

    trusted: whether only rows count on which a finding may rest; tables count all valid rows.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return {}
    rows = sound(evidence, STEM) if trusted else frame[gates.shown(frame)]
    return evidence.once(("collective lines", trusted), lambda: _lines(rows))


def _lines(rows: pd.DataFrame) -> dict[Key, Line]:
    rows = having(rows, implementation=LIBRARY)
    return {
        (operation, dtype, int(ranks)): fit(
            operation, ranks, part["message_bytes"], part["median_ms"] / MS_PER_S
        )
        for operation, dtype, ranks, part in groups(rows, "operation", "dtype", "ranks")
        if part["message_bytes"].nunique() >= LEAST_SIZES
    }


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
    wrong = value_cells(frame, frame["error_wrong_elements"], "{:.0f}".format)
    columns = [
        time("time", kernel_times(frame), "forward"),
        time("host", value_cells(frame, frame["host_ms"]), "host"),
        rate(
            "algorithm / bus",
            beside(algorithm, frame["bus_gbps"]),
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
        " by relative errors; in brackets the 95 % interval. Error: standard deviation."
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


def all_reduces(evidence: MachineEvidence) -> list[Table]:
    """Tables D15, one for each dtype and number of ranks: two all-reduces beside the library's."""
    frame = evidence.frame(STEM)
    if frame is None or not {PARTS, ROUND} & {*frame["implementation"]}:
        return []
    frame = having(frame, operation=ALL_REDUCE)
    lines = lines_of(evidence, trusted=False)
    over = speedup_cells(
        evidence, STEM, Series.of(implementation=PARTS), Series.of(implementation=ROUND)
    )
    parts = groups(frame, "dtype", "ranks")
    return each(*(_all_reduces(part, lines, over) for _, _, part in parts))


def _all_reduces(frame: pd.DataFrame, lines: Mapping[Key, Line], over: pd.Series) -> Table | None:
    columns = []
    for name in in_order("implementation", frame["implementation"]):
        rows, words = having(frame, implementation=name), implementation_words(name)
        columns.append(time(words, kernel_times(rows), f"forward.{name}"))
        if name != LIBRARY:
            cells = number_cells(predicted_ms(rows, lines))
            columns.append(_predicted(words, cells, name))
    columns.append(
        speedup("parts over whole", over[over.index.isin(frame.index)], f"{PARTS}.over.{ROUND}")
    )
    ranks = int(frame["ranks"].iloc[0])
    note = (
        f"{kernel_note(frame)} In parts, each of {ranks} ranks sends"
        f" {bus_factor(ALL_REDUCE, ranks):.3g} times the message; passed round whole, {ranks - 1}"
        " times. Predicted: from the fits of reduce-scatter and all-gather, and of the copy (D1);"
        " additions are left out."
    )
    cell = ["message_bytes", "dtype", "ranks"]
    return side_by_side("All-reduces", frame, cell, columns, note)


def _predicted(words: str, cells: pd.Series, name: str) -> Beside:
    header, named = f"{words}, predicted (ms)", f"forward.{name}.predicted"
    return Beside(header, cells, named, "ms", "significant", LOWER, TIME)


def predicted_ms(rows: pd.DataFrame, lines: Mapping[Key, Line]) -> pd.Series:
    """The predicted time of each row of D15 in ms; NaN without the fits of its parts."""
    found = [
        _prediction(row.implementation, row.dtype, int(row.ranks), row.message_bytes, lines)
        for row in rows.itertuples()
    ]
    return pd.Series(found, rows.index, dtype=float)


def _prediction(
    name: str, dtype: str, ranks: int, message: float, lines: Mapping[Key, Line]
) -> float:
    known = {
        operation: lines.get((operation, dtype, 2 if operation == COPY else ranks))
        for operation in ("reduce_scatter", "all_gather", COPY)
    }
    if None in known.values():
        return float("nan")
    return MS_PER_S * predicted_all_reduces(ranks, known)[name](message)


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
        "dtype": dtype_words(best["dtype"]),
    }


def _passed_round(evidence: MachineEvidence) -> dict:
    """Whole tensors against parts at the largest message and the most ranks, and as predicted."""
    rows_of(evidence, STEM, implementation=PARTS)
    pair = (Series.of(implementation=name) for name in (PARTS, ROUND))
    found = measured(resolved(evidence, STEM, *pair))
    found = having(found, ranks=found["ranks"].max())
    found = having(found, message_bytes=found["message_bytes"].max())
    best, lines = found.iloc[0], lines_of(evidence, trusted=True)
    cell = best["dtype"], int(best["ranks"]), best["message_bytes"]
    parts, whole = (_prediction(name, *cell, lines) for name in (PARTS, ROUND))
    if not parts == parts:
        raise NotMeasured
    ratio = best["ratio"]
    return {
        "ranks": int(best["ranks"]),
        "message": bytes_words(best["message_bytes"]),
        "ratio": max(ratio, 1 / ratio),
        "predicted": whole / parts,
        "answer": "same" if best["verdict"] == SAME else "parts" if ratio > 1 else "whole",
    }


_REACH = (
    "All-reduces of {{ message }} over {{ ranks }} ranks reach {{ bus | sig }} GB/s (bus)."
    " That is {{ share | percent }} of a copy's rate"
)
_CALL = (
    " Shorter than {{ half }}, a message takes less time than its call ({{ overhead | sig }} us)."
)
_OVER = "An all-reduce of {{ message }} over {{ ranks }} ranks"
_PREDICTED = " The fits of their parts (D1) predict {{ predicted | ratio }}."

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
    Finding(
        name="collectives_round",
        question="Does an all-reduce pay to be made of parts, instead of passing tensors round?",
        values=_passed_round,
        answer=lambda v: v["answer"],
        answers={
            "parts": _OVER + " is {{ ratio | ratio }} as fast by reduce-scatter and all-gather as"
            " by passing whole tensors round." + _PREDICTED,
            "whole": _OVER + " is {{ ratio | ratio }} as fast by passing whole tensors round as by"
            " reduce-scatter and all-gather." + _PREDICTED,
            "same": _OVER + " takes as long by reduce-scatter and all-gather as by passing whole"
            " tensors round." + _PREDICTED,
        },
    ),
)

TABLES = (
    TableGroup(
        "D1",
        "Collectives between ranks, and a copy",
        rates,
        Owed(where=lambda frame: frame["implementation"] == LIBRARY, stem=STEM, cell=CELL),
    ),
    TableGroup(
        "D15",
        "All-reduce in parts and by passing whole tensors round",
        all_reduces,
        Owed(
            where=lambda frame: frame["implementation"].isin([PARTS, ROUND]),
            stem=STEM,
            cell=[*CELL, "implementation"],
        ),
    ),
)
