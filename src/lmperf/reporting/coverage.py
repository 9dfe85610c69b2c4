"""How much of every numbered table a machine has measured, and why the rest is missing.

``lmperf verify`` fails on a silent gap: a table that has rows and shows nothing, or that has
neither rows nor a reason why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, axes
from lmperf.reporting.numbers import counted
from lmperf.reporting.sections import Composed
from lmperf.reporting.tables import Owed, TableGroup


@dataclass(frozen=True)
class State:
    """How much of a table is measured.

    Attributes:
        table: the numbered table.
        page: file name of the page that shows the table.
        measured: number of cells of the table that have rows.
        owed: number of cells of the table that are configured or measured.
        words: the state in words, as "partly measured, stale".
        gap: whether the table is a silent gap: missing without a reason.
    """

    table: TableGroup
    page: str
    measured: int
    owed: int
    words: str
    gap: bool


NOT_ASKED = "its cells are not configured"


def states(evidence: MachineEvidence, sections: Sequence[Composed]) -> list[State]:
    """The state of every numbered table, in the order of the report.

    A machine with too few devices for a section lacks the tables of the section.
    """
    return [
        _state(evidence, section, table)
        for section in sections
        if not _is_beyond(evidence, section)
        for table in section.section.tables
        if table.id
    ]


def _is_beyond(evidence: MachineEvidence, section: Composed) -> bool:
    """Whether a section needs several devices, and the machine neither has nor owes its rows."""
    stems = section.benchmarks
    several = bool(stems) and all(load(stem).least_devices > 1 for stem in stems)
    known = {*evidence.frames, *evidence.lacking, *evidence.damaged}
    return several and known.isdisjoint(stems)


def gaps(found: Sequence[State]) -> list[str]:
    """A line for each silent gap: a table that is missing without a reason."""
    return [f"table {s.table.id} ({s.table.title}): {s.words}" for s in found if s.gap]


def _state(evidence: MachineEvidence, section: Composed, table: TableGroup) -> State:
    owed, stem = table.owed, table.owed.stem or section.stem
    if owed.counted is not None:
        return State(table, section.page, *_counted(evidence, owed.counted(evidence)), gap=False)
    rows = _chosen(evidence.frame(stem), owed)
    lacking = _chosen(evidence.lacking.get(stem), owed)
    measured = _cells(rows, owed)
    due = measured | _cells(lacking, owed)
    if owed.of is not None:
        every = replace(owed, where=owed.of)
        frames = (evidence.frame(stem), evidence.lacking.get(stem))
        due = due.union(*(_cells(_chosen(frame, every), owed) for frame in frames))
    words, gap = _words(evidence, stem, owed, rows, len(measured), len(due))
    withheld = measured - _cells(rows[~gates.red(rows)], owed)
    if withheld and len(withheld) < len(measured):
        words += f", {len(withheld)} withheld"
    parts = section.parts.get(table.name)
    if any(marks.legend(part.cells) for part in parts or ()):
        marked = _cells(rows[gates.shown(rows) & marks.marks_of(rows).map(bool)], owed)
        words += f", {counted(len(marked), 'line')} marked" if marked else ""
    if not gap and gates.shown(rows).any() and not parts:
        words, gap = "measured, but its page does not show it", True
    return State(table, section.page, len(measured), len(due), words, gap)


def _counted(evidence: MachineEvidence, counts: tuple[int, int]) -> tuple[int, int, str]:
    measured, due = counts
    if measured:
        return measured, due, "measured" if measured == due else "partly measured"
    return measured, due, "not measured yet" if due else "not configured"


def _chosen(frame: pd.DataFrame | None, owed: Owed) -> pd.DataFrame:
    if frame is None or frame.empty:
        return pd.DataFrame({"implementation": [], "phase": [], "status": []}, dtype=object)
    return frame if owed.where is None else frame[owed.where(frame)]


def _cells(rows: pd.DataFrame, owed: Owed) -> set[tuple]:
    if rows.empty:
        return set()
    names = list(owed.cell) or [*_axes_of(rows), "implementation"]
    return set(rows[names].astype(str).itertuples(index=False, name=None))


def _axes_of(rows: pd.DataFrame) -> list[str]:
    return axes(rows) if "implementation" in rows else []


def _words(
    evidence: MachineEvidence, stem: str, owed: Owed, rows: pd.DataFrame, measured: int, due: int
) -> tuple[str, bool]:
    """The state of a table in words, and whether the table is a silent gap."""
    if stem in evidence.damaged:
        return "withheld: its evidence is damaged", False
    if len(rows) and not gates.shown(rows).any():
        return "no row with a valid result", False
    if len(rows):
        stale = ", stale" if "stale" in rows and rows["stale"].any() else ""
        return ("measured" if measured == due else "partly measured") + stale, False
    if due:
        asked = len(_chosen(evidence.lacking.get(stem), owed))
        return "not measured yet" if asked else evidence.left_out.get(stem, NOT_ASKED), False
    preset = evidence.facts.get("preset", "cpu")
    outside = None if preset == "gpu" else f"not in the {preset} preset"
    reason = owed.unless or evidence.left_out.get(stem) or outside
    return reason or "not measured, no reason recorded", reason is None
