"""Plain attention over the whole range of lengths, compiled and not, and what it holds."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import VERDICTS, Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections.attention.claims import CELL, SQUARE, compiling, exponent, with_held

STEM = "attention"
WIDTHS = {"float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2}
SAME_MEMORY = 0.01
REST = 0.05
MIB = 2**20


def _held(evidence: MachineEvidence, **where) -> pd.DataFrame:
    return with_held(rows_of(evidence, STEM, phase="backward", **where))


def _factors(rows: pd.DataFrame, column: str, ends: tuple) -> pd.Series:
    """Longest over shortest length of a column, by cell."""
    groups = [name for name in CELL if rows[name].notna().all()]
    wide = rows.pivot_table(index=groups, columns="seq_len", values=column, aggfunc="last")
    wide = wide.reindex(columns=list(ends))
    found = (wide[ends[1]] / wide[ends[0]]).dropna()
    if found.empty:
        raise NotMeasured("no cell has both the shortest and the longest length")
    return found


def _whole_range(evidence: MachineEvidence) -> dict:
    where = {"implementation": "eager", "dtype": "float32"}
    forward = rows_of(evidence, STEM, phase="forward", **where)
    held = _held(evidence, **where)
    ends = held["seq_len"].min(), held["seq_len"].max()
    if ends[0] == ends[1] or not set(ends) <= set(forward["seq_len"]):
        raise NotMeasured("forward and backward of two lengths")
    time, memory = _factors(forward, "median_ms", ends), _factors(held, "held", ends)
    return {
        "shortest": ends[0],
        "longest": ends[1],
        "times": ends[1] / ends[0],
        "low": time.min(),
        "high": time.max(),
        "memory_low": memory.min(),
        "memory_high": memory.max(),
    }


def _growth(evidence: MachineEvidence) -> dict:
    where = {"dtype": "float32", "phase": "forward"}
    compiled = rows_of(evidence, STEM, implementation="compiled", **where)
    eager = rows_of(evidence, STEM, implementation="eager", **where)
    found = exponent(compiled, "median_ms")
    return {**found, "eager": exponent(eager, "median_ms")["middle"]}


def _same_memory(evidence: MachineEvidence) -> dict:
    held = _held(evidence, dtype="float32")
    groups = [name for name in (*CELL, "seq_len") if held[name].notna().all()]
    wide = held.pivot_table(index=groups, columns="implementation", values="held", aggfunc="last")
    if not {"eager", "compiled"} <= set(wide.columns):
        raise NotMeasured("the memory of both compiled and eager")
    ratio = (wide["compiled"] / wide["eager"]).dropna()
    if ratio.empty:
        raise NotMeasured("no cell has the memory of both")
    return {
        "off": (ratio - 1).abs().max(),
        "cells": len(ratio),
        "allowed": SAME_MEMORY,
    }


def _matrices(evidence: MachineEvidence) -> dict:
    held = _held(evidence, implementation="eager")
    held = held[held["seq_len"] == held["seq_len"].max()]
    matrix = held["batch"] * held["seq_len"] ** 2 * held["dtype"].map(WIDTHS) / MIB
    number = (held["held"] / matrix).dropna()
    if number.empty:
        raise NotMeasured("no dtype of known width")
    count = max(1, round(number.median()))
    return {
        "count": count,
        "length": held["seq_len"].iloc[0],
        "low": (count / number).min(),
        "high": (count / number).max(),
        "cells": len(number),
        "rest": REST,
    }


CLAIMS = (
    Claim(
        name="whole_range",
        text="Long sequences cost more than their length: from {{ shortest }} to {{ longest }},"
        " {{ times | sig }} times as long, the forward of plain attention (eager, float32 IEEE)"
        " takes {{ low | sig }} to {{ high | sig }} times as long, and it holds"
        " {{ memory_low | sig }} to {{ memory_high | sig }} times as much for its backward.",
        values=_whole_range,
        holds=lambda v: v["low"] > v["times"] and v["memory_low"] > v["times"],
        about="attention at the longest length against the shortest",
        instead="Not all of that is more than the length.",
    ),
    Claim(
        name="compiled_exponent",
        text="Compiled attention (forward, float32 IEEE) grows with about the square of the length,"
        " as the eager one does: exponent {{ middle | sig }} ({{ lowest | sig }} to"
        " {{ highest | sig }} over {{ fits }} fits, lengths {{ from_length }} to"
        " {{ to_length }}), {{ eager | sig }} where it is not compiled.",
        values=_growth,
        holds=lambda v: all(SQUARE[0] <= v[name] <= SQUARE[1] for name in ("middle", "eager")),
        about="how compiled attention grows with the length",
        instead="Not both of these exponents are near two.",
    ),
    Claim(
        name="compiling_backward",
        text="In the backward (float32 IEEE) compiling plain attention pays"
        "{% if first %} from length {{ first }}"
        " on{% else %} at no length measured{% endif %}, with {{ lowest | ratio }} to"
        " {{ highest | ratio }} over eager." + VERDICTS,
        values=lambda evidence: compiling(evidence, "backward"),
        holds=lambda v: v["steady"],
        about="compiled against eager attention in the backward",
        instead="The lengths do not follow one another.",
    ),
    Claim(
        name="compiling_memory",
        text="Compiling saves plain attention no memory: what it holds for its backward is the same"
        " as in eager mode, to within {{ off | percent }} (float32 IEEE, {{ cells }} cells).",
        values=_same_memory,
        holds=lambda v: v["off"] <= v["allowed"],
        about="the memory of compiled attention",
        instead="This report calls it the same up to {{ allowed | percent }}.",
    ),
    Claim(
        name="matrices",
        text="Plain attention holds {{ 'one matrix' if count == 1 else count ~ ' matrices' }} of"
        " the length squared for its backward, and little else: at length {{ length }}"
        " {{ 'it is' if count == 1 else 'they are' }} {{ low | percent }} to {{ high | percent }}"
        " of what it holds (eager, {{ cells }} cells).",
        values=_matrices,
        holds=lambda v: max(abs(1 - v["low"]), abs(1 - v["high"])) <= v["rest"],
        about="what plain attention holds for its backward",
        instead="This report expects no more than {{ rest | percent }} besides.",
    ),
)
