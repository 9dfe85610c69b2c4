"""What the evidence on plain attention says."""

from __future__ import annotations

from lmperf.names import dtype_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import Count, Spread
from lmperf.reporting.sections.attention.tables import BASE, STEM
from lmperf.reporting.speedup import FASTER, SLOWER, Series, compared

CELL = ["batch", "d_head", "causal"]
# A doubling of the length: time and memory of a square grow by four, of a line by two.
SQUARE, LINE = 4.0, 2.0
WITHIN = 0.25


def _end(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, "attention_limit")
    rows = measured(rows[rows["requested_mib"].notna() & (rows["outcome"] == "out of memory")])
    first = rows.loc[rows["seq_len"].idxmin()]
    return {
        "length": f"{first['seq_len']:,.0f}",
        "numerics": dtype_words(first["dtype"]),
        "asked": first["requested_mib"] * 2**20,
        "free": first["free_mib"] * 2**20,
        "off": first["predicted_requested_mib"] / first["requested_mib"] - 1,
    }


def _doubling(evidence: MachineEvidence) -> dict:
    """Factors of time and of memory held, over the last doubling of the length that was run."""
    rows = rows_of(evidence, STEM, implementation="eager", dtype="float32", phase="backward")
    rows = rows.assign(held=rows["saved_mib"] - rows["resident_mib"].fillna(0.0))
    ends = sorted(rows["seq_len"].unique())[-2:]
    if len(ends) < 2 or ends[1] != 2 * ends[0]:
        raise NotMeasured
    wide = rows.pivot_table(index=CELL, columns="seq_len", values=["median_ms", "held"])
    factors = {name: (wide[name][ends[1]] / wide[name][ends[0]]) for name in ("median_ms", "held")}
    memory = measured(factors["held"].dropna())
    return {
        "short": f"{ends[0]:,.0f}",
        "long": f"{ends[1]:,.0f}",
        "time": Spread.of(factors["median_ms"].dropna()),
        "memory": Spread.of(memory),
    }


def _kind_of_growth(values: dict) -> str:
    middle = values["memory"].middle
    near = {"square": SQUARE, "line": LINE}
    return next((name for name, f in near.items() if abs(middle / f - 1) <= WITHIN), "other")


def _compiling(evidence: MachineEvidence) -> dict:
    evidence_rows = rows_of(evidence, STEM, implementation="compiled", dtype="float32")
    series = Series.of(implementation="compiled", dtype="float32")
    rows = measured(compared(evidence, STEM, series, BASE))
    return {
        "cells": len(evidence_rows),
        "faster": Count(int((rows["verdict"] == FASTER).sum()), len(rows)),
        "slower": Count(int((rows["verdict"] == SLOWER).sum()), len(rows)),
        "forward": Spread.of(having(rows, phase="forward")["ratio"]),
        "backward": Spread.of(having(rows, phase="backward")["ratio"]),
    }


def _compiling_answer(values: dict) -> str:
    if values["faster"].all:
        return "faster"
    return "mixed" if values["slower"].k else "never_slower"


FINDINGS = (
    Finding(
        name="attention_ends",
        question="Where does plain attention end?",
        values=_end,
        answer=lambda v: "predicted" if abs(v["off"]) <= 0.01 else "unpredicted",
        answers={
            "predicted": "Plain attention ends at length {{ length }} ({{ numerics }}):"
            " {{ asked | gib }} asked, as predicted; {{ free | gib }} free.",
            "unpredicted": "Plain attention ends at length {{ length }} ({{ numerics }}):"
            " {{ asked | gib }} asked, {{ free | gib }} free; predicted was"
            " {{ off | signed_percent }}.",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_growth",
        question="How do time and memory grow with the length?",
        values=_doubling,
        answer=_kind_of_growth,
        answers={
            "square": "Twice the length, {{ short }} to {{ long }}, takes {{ time | range }} times"
            " the time in the backward and {{ memory | range }} times the memory kept for it: the"
            " square, where a published write-up (001) says that memory grows in proportion.",
            "line": "Twice the length, {{ short }} to {{ long }}, takes {{ time | range }} times"
            " the time in the backward and {{ memory | range }} times the memory kept for it: in"
            " proportion to the length.",
            "other": "Twice the length, {{ short }} to {{ long }}, takes {{ time | range }} times"
            " the time in the backward and {{ memory | range }} times the memory kept for it.",
        },
    ),
    Finding(
        name="attention_compiled",
        question="What does compiling plain attention bring?",
        values=_compiling,
        answer=_compiling_answer,
        answers={
            "faster": "Compiled (float32), it is faster in all {{ faster.n }} comparisons:"
            " {{ forward | range('ratio') }} forward, {{ backward | range('ratio') }} backward.",
            "never_slower": "Compiled (float32), it is faster in {{ faster }} comparisons and"
            " slower in none: {{ forward | range('ratio') }} forward,"
            " {{ backward | range('ratio') }} backward.",
            "mixed": "Compiled (float32), it is faster in {{ faster }} comparisons and slower in"
            " {{ slower.k }}: {{ forward | range('ratio') }} forward,"
            " {{ backward | range('ratio') }} backward.",
        },
    ),
)
