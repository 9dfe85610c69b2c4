"""Table D15 and its finding: all-reduces in parts, and by passing whole tensors round a ring."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lmperf.distributed.cost import Line, bus_factor
from lmperf.names import bytes_words, implementation_words, in_order
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import Count
from lmperf.reporting.sections.distributed.links import (
    ALL_REDUCE,
    CELL,
    LIBRARY,
    STEM,
    Key,
    lines_of,
    predicted_ms,
    prediction_ms,
)
from lmperf.reporting.side_by_side import Beside, each, side_by_side, speedup, time
from lmperf.reporting.speedup import Series, resolved, speedup_cells
from lmperf.reporting.tables import Owed, TableGroup, kernel_note, kernel_times, number_cells
from lmperf.results import LOWER, TIME, Table
from lmperf.statistics import FASTER, SAME, SLOWER

PARTS, ROUND = "scatter_gather", "pass_round"


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


def _passed_round(evidence: MachineEvidence) -> dict:
    """Whole tensors against parts at the largest message and the most ranks, and as predicted."""
    rows_of(evidence, STEM, implementation=PARTS)
    pair = (Series.of(implementation=name) for name in (PARTS, ROUND))
    found = measured(resolved(evidence, STEM, *pair))
    found = having(found, ranks=found["ranks"].max())
    found = having(found, message_bytes=found["message_bytes"].max())
    best, lines = found.iloc[0], lines_of(evidence, trusted=True)
    cell = best["dtype"], int(best["ranks"]), best["message_bytes"]
    parts, whole = (prediction_ms(name, *cell, lines) for name in (PARTS, ROUND))
    if pd.isna(parts):
        raise NotMeasured
    faster = best["verdict"] in (SAME, FASTER)
    return {
        "ranks": int(best["ranks"]),
        "message": bytes_words(best["message_bytes"]),
        "ratio": best["ratio"] if faster else 1 / best["ratio"],
        "predicted": whole / parts if faster else parts / whole,
        "answer": {SAME: "same", FASTER: "parts"}.get(best["verdict"], "whole"),
        "library": implementation_words(LIBRARY),
        **_library(evidence, best),
    }


def _library(evidence: MachineEvidence, like: pd.Series) -> dict:
    """At how many sizes the library's all-reduce is faster than both others, or slower than one.

    `par` counts the other sizes at which both comparisons are resolved, `open` those left.
    """
    same = {name: like[name] for name in ("operation", "dtype", "ranks")}
    frame = having(evidence.frame(STEM), **same, implementation=LIBRARY)
    verdicts = pd.DataFrame(index=frame.index)
    for name in (PARTS, ROUND):
        pair = (Series.of(implementation=one) for one in (LIBRARY, name))
        verdicts[name] = resolved(evidence, STEM, *pair)["verdict"].reindex(frame.index)
    wins, loses = (verdicts == FASTER).all(axis=1), (verdicts == SLOWER).any(axis=1)
    par = verdicts.notna().all(axis=1) & ~wins & ~loses
    return {
        "wins": Count(int(wins.sum()), len(frame)),
        "loses": int(loses.sum()),
        "par": int(par.sum()),
        "open": int((~wins & ~loses & ~par).sum()),
    }


_OVER = "An all-reduce of {{ message }} over {{ ranks }} ranks"
_PREDICTED = (
    " The fits of their parts (D1) predict {{ predicted | ratio }}."
    "{% if open == wins.n %} No size decides whether {{ library }}'s own all-reduce is faster than"
    " both, or slower than one of them."
    "{% else %} {{ library }}'s own all-reduce is faster than both at"
    " {{ wins.k if wins.k else 'none' }} of {{ wins.n | count('size') }}"
    "{% if loses %}, and slower than one of them at {{ loses }}{% endif %}."
    "{% if par %} At {{ par }} it is on par with at least one of them.{% endif %}"
    "{% if open %} {{ open | count('size') }} {{ 'does' if open == 1 else 'do' }} not decide."
    "{% endif %}{% endif %}"
)

FINDINGS = (
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
