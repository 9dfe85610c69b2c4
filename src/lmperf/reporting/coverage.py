"""Which tables this report owes its reader, and the state of each on this machine.

A section module says what its tables rest on, where that is not simply all rows of its stem:

    TABLES = {"E3": Rests(where=having(implementation=("eager", "compiled")))}

A table that no module declares counts as shown by the section whose text has its caption. A table
is a silent gap when no section shows it, or when its rows are neither there nor accounted for; that
fails `lmperf verify`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.reporting.numbers import EMPTY, listed
from lmperf.reporting.tables import STATUS_WORDS, markdown

# Every table of the report: its title, and the section where it is at home.
OWED = {
    "E1": ("forward, backward, both, and a whole train step", "end_to_end"),
    "E2": ("warm-up steps", "warmup"),
    "E3": ("eager against compiled", "end_to_end"),
    "E4": ("float32 against mixed precision", "end_to_end"),
    "E5": ("the same cells on several machines", "end_to_end"),
    "P1": ("kernels by phase", "profiles"),
    "P2": ("share of each class of kernels", "profiles"),
    "P3": ("inside attention: time beside FLOPs", "profiles"),
    "P4": ("traces", "profiles"),
    "M1": ("accumulation in several precisions", "mixed_precision"),
    "M2": ("dtypes under autocast", "mixed_precision"),
    "Y1": ("peak memory, measured and predicted", "memory"),
    "Y2": ("memory over time", "memory_timeline"),
    "Y3": ("largest allocations", "memory_timeline"),
    "Y4": ("one tensor of the residual stream", "memory_timeline"),
    "Y5": ("memory by component", "memory"),
    "A1": ("plain PyTorch attention", "attention"),
    "A2": ("the same compiled, and in other numerics", "attention"),
    "A3": ("the smallest attention that runs out of memory", "attention"),
    "A4": ("memory of attention, step by step", "attention"),
    "F1": ("FlashAttention-2 against plain attention", "flash_attention"),
    "F2": ("FlashAttention-2 against the backends of PyTorch", "flash_attention"),
    "F3": ("FlashAttention-2 on a grid that fills the device", "flash_attention"),
    "F4": ("errors of FlashAttention-2 against float64", "flash_attention"),
    "L1": ("speed of md_lrpe_cosine", "lrpe"),
    "L2": ("memory of md_lrpe_cosine", "lrpe"),
}

Where = Callable[[pd.DataFrame], pd.Series]


def having(**columns: Collection) -> Where:
    """Rows whose columns have one of the given values; none where a column is not there."""

    def where(frame: pd.DataFrame) -> pd.Series:
        chosen = pd.Series(True, frame.index)
        for name, values in columns.items():
            chosen &= frame[name].isin(values) if name in frame.columns else False
        return chosen

    return where


def observing(column: str, *values: object) -> Where:
    """Rows of an observation by a column of its own, which what is still lacking does not have."""

    def where(frame: pd.DataFrame) -> pd.Series:
        return frame[column].isin(values) if column in frame else pd.Series(True, frame.index)

    return where


@dataclass(frozen=True)
class Rests:
    """What a table rests on.

    Attributes:
        where: its rows, of the frame of a stem; all of them when None.
        stem: the evidence; that of the section itself when None.
        unless: why a machine may have no such rows although its preset has them.
        shown_in: where the table stands when not in this section, as Markdown.
    """

    where: Where | None = None
    stem: str | None = None
    unless: str | None = None
    shown_in: str | None = None


@dataclass(frozen=True)
class State:
    """A table's state: its section, cells, rows by status, in words, and whether it is a gap."""

    table: str
    section: str
    cells: int
    rows: int
    failed: str
    words: str
    gap: bool


@dataclass(frozen=True)
class Shown:
    """What is known of a section: its stem, its text, and what its module declares."""

    stem: str
    text: str
    tables: Mapping[str, Rests]


def states(evidence: MachineEvidence, sections: Sequence[Shown]) -> list[State]:
    """The state of every table that is owed, in order."""
    return [_state(evidence, table, sections) for table in OWED]


def _state(evidence: MachineEvidence, table: str, sections: Sequence[Shown]) -> State:
    section = _section_of(table, sections)
    if section is None:
        return State(table, EMPTY, 0, 0, EMPTY, "no section of this report shows it", True)
    rests = section.tables.get(table, Rests())
    stem = rests.stem or section.stem
    rows, lacking = _chosen(evidence.frame(stem), rests), _chosen(evidence.lacking.get(stem), rests)
    words, gap = _words(evidence, stem, rests, rows, lacking)
    if not gap and gates.shown(rows).any():
        if rests.shown_in:
            words = f"{words}; {rests.shown_in}"
        elif f"**Table {table}" not in section.text and not _named(table, section.text):
            words, gap = "measured, but the section does not show it", True
    return State(table, section.stem, _cells(rows), len(rows), _failed(rows), words, gap)


def _named(table: str, text: str) -> bool:
    """Whether a picture or a link stands for the table: its id occurs as a word."""
    return re.search(rf"\b{table}\b", text) is not None


def _section_of(table: str, sections: Sequence[Shown]) -> Shown | None:
    """The section that declares a table, else the one with its caption, else its home."""
    for chosen in (
        lambda section: table in section.tables,
        lambda section: f"**Table {table}" in section.text,
        lambda section: section.stem == OWED[table][1],
    ):
        found = next(filter(chosen, sections), None)
        if found is not None:
            return found
    return None


def _chosen(frame: pd.DataFrame | None, rests: Rests) -> pd.DataFrame:
    if frame is None or frame.empty:
        return pd.DataFrame({"implementation": [], "phase": [], "status": []}, dtype=object)
    return frame if rests.where is None else frame[rests.where(frame)]


def _words(
    evidence: MachineEvidence, stem: str, rests: Rests, rows: pd.DataFrame, lacking: pd.DataFrame
) -> tuple[str, bool]:
    """The state in words, and whether it is a gap that nothing accounts for."""
    if stem in evidence.damaged:
        return "withheld: its evidence is damaged", False
    if len(rows) and not gates.shown(rows).any():
        return "nothing that may be shown", False
    if len(rows) and len(lacking):
        return f"partly: {len(rows)} of {len(rows) + len(lacking)} rows", False
    if len(rows):
        return "measured", False
    if len(lacking):
        return f"not measured: none of its {len(lacking)} rows is there", False
    preset = evidence.facts.get("preset", "cpu")
    outside = None if preset == "gpu" else f"the {preset} preset leaves it out"
    reason = rests.unless or evidence.left_out.get(stem) or outside
    return f"not measured: {reason or 'and nothing says why'}", reason is None


def _cells(rows: pd.DataFrame) -> int:
    return 0 if rows.empty else len(rows[[*axes(rows), "implementation"]].drop_duplicates())


def _failed(rows: pd.DataFrame) -> str:
    """Rows that could not be measured, or whose gate failed, by status."""
    if rows.empty:
        return EMPTY
    counts = rows["status"].where(~(gates.red(rows) & (rows["status"] == "ok")), "failed_check")
    counts = counts.value_counts()
    return listed(f"{counts[s]} {words}" for s, words in STATUS_WORDS.items() if s in counts)


def table(found: Sequence[State]) -> str:
    """One line for every table that is owed."""
    lines = [
        {
            "table": state.table,
            "content": OWED[state.table][0],
            "section": state.section,
            "cells": state.cells,
            "rows": state.rows,
            "failed or unsupported": state.failed,
            "state": state.words,
        }
        for state in found
    ]
    left = ["table", "content", "section", "failed or unsupported", "state"]
    return markdown(pd.DataFrame(lines), "Tables of this report, and what they rest on", left)


def gaps(found: Sequence[State]) -> list[str]:
    """The silent gaps, in words."""
    return [f"table {s.table} ({OWED[s.table][0]}): {s.words}" for s in found if s.gap]
