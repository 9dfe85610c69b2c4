"""The command under a table that measures one of its cells again and compares the two results.

`lmperf run STEM --only ... --against MACHINE` prints whether the row is reproduced
(`lmperf.reporting.against`). The command names one case and one phase: those of a row that the
table shows, or, if its cells are not of single rows, of a row that its group of tables must show.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from lmperf.benchmark import Axis, Benchmark, Case, Value
from lmperf.benchmarks import load, stems
from lmperf.config import canonical
from lmperf.names import size_words
from lmperf.reporting import custom, gates, marks
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import LONGEST, code, plain
from lmperf.reporting.numbers import absent
from lmperf.reporting.sections import benchmarks_of
from lmperf.reporting.tables import TableGroup
from lmperf.results import Table

# Selects rows when called: of most tables only those of the first benchmark are needed.
_Rows = Callable[[], pd.DataFrame]
# A row whose call takes at most this long is measured within seconds.
LONGEST_MS = 20.0


def lines(
    evidence: MachineEvidence, stem: str, group: TableGroup, tables: Sequence[Table]
) -> list[str]:
    """A line of Markdown for each table of a group: the command, or empty text.

    stem: the stem of the section. Tables whose cells are not of single rows share one line, below
    the last of them.
    """
    shown = [_shown(evidence, stem, table) for table in tables]
    if tables and not any(shown):
        shown[-1] = _owed(evidence, stem, group)
    return [_line(evidence, rows) for rows in shown]


def cell_of(benchmark: Benchmark, row: Mapping) -> dict[str, Value]:
    """Axis -> value as in a case, for a row of a frame; empty text for a value that is absent.

    Raises:
        KeyError: the row lacks an axis.
        ValueError: the benchmark has no such size.
    """
    return {axis.name: _value(axis, row[axis.name]) for axis in benchmark.axes}


def command(benchmark: Benchmark, row: Mapping, machine: str) -> str:
    """The command line that measures a row of a machine's evidence again and compares it."""
    cell = {name: size_words(str(of)) for name, of in cell_of(benchmark, row).items() if of != ""}
    only = ",".join(f"{name}={of}" for name, of in cell.items())
    words = ["lmperf", "run", benchmark.stem, "--only", only]
    words += ["--implementations", plain(row["implementation"])]
    words += ["--phases", row["phase"]] if len(benchmark.phases) > 1 else []
    return shlex.join([*words, "--against", machine])


def _line(evidence: MachineEvidence, rows: Mapping[str, _Rows]) -> str:
    """The line for the best row of the first benchmark that has one; empty text for none."""
    for stem, of in rows.items():
        row = _chosen(evidence, stem, of())
        if row is not None:
            text = command(load(stem), row, evidence.machine)
            return f"Reproduce a cell: {code(text)}" if len(text) <= LONGEST else ""
    return ""


def _shown(evidence: MachineEvidence, stem: str, table: Table) -> dict[str, _Rows]:
    """Stem of a benchmark -> its rows that are cells of a table; `cells` says of how many.

    The benchmarks of the section come first.
    """
    cells = Counter(cell.row for cell in table.cells if cell.row is not None)
    known = _benchmarks_by_key(evidence)
    having = {name for key in cells for name in known.get(key, ())}
    names = dict.fromkeys((*benchmarks_of(stem), *stems())) if having else ()
    return {name: partial(_with_keys, evidence, name, cells) for name in names if name in having}


def _with_keys(evidence: MachineEvidence, stem: str, cells: Mapping[str, int]) -> pd.DataFrame:
    rows = evidence.frame(stem)
    rows = rows[rows["key"].isin(cells)]
    return rows.assign(cells=rows["key"].map(cells))


def _benchmarks_by_key(evidence: MachineEvidence) -> dict[str, list[str]]:
    """Key of a row -> the stems of the benchmarks that have rows with this key."""

    def make() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for stem, frame in evidence.present().items():
            for key in frame["key"].dropna().unique():
                found.setdefault(key, []).append(stem)
        return found

    return evidence.once(("benchmarks by key",), make)


def _owed(evidence: MachineEvidence, stem: str, group: TableGroup) -> dict[str, _Rows]:
    """Stem of a benchmark -> the rows that a group of tables must show; empty if none is known."""
    stem = group.owed.stem or stem
    frame = evidence.frame(stem) if stem in stems() and group.owed.counted is None else None
    if frame is None:
        return {}
    rows = frame if group.owed.where is None else frame[group.owed.where(frame)]
    return {stem: lambda: rows.assign(cells=0)}


def _chosen(evidence: MachineEvidence, stem: str, rows: pd.DataFrame) -> pd.Series | None:
    """The row to measure again; None without a row that has a valid result.

    A sound and fresh row is best; then one that needs no compiled model, since compiling takes
    longer than measuring; one that is not too slow; one that most cells show, as those of the
    implementation that a table is about; and the slowest of these. Rows of peers and custom
    implementations are left out, since they need more than this project.
    """
    benchmark = load(stem)
    rows = rows[gates.shown(rows) & ~rows["implementation"].isin(custom.names(evidence, stem))]
    steps = getattr(benchmark, "clock", None) == "step"
    compiled = [name for name, one in benchmark.known.items() if steps and one.compiles]
    stale = rows["stale"] if "stale" in rows else pd.Series(False, rows.index)
    time = rows["median_ms"].astype(float).fillna(0.0)
    is_long = time > LONGEST_MS
    order = pd.DataFrame(
        {
            "unsound": marks.doubtful(rows, stem) | stale.astype(bool),
            "compiled": rows["implementation"].isin(compiled),
            "long": is_long,
            "cells": -rows["cells"],
            "time": time.where(is_long, -time),
        }
    )
    labels = order.sort_values([*order], kind="stable").index
    return next((row for _, row in rows.loc[labels].iterrows() if _is_case(benchmark, row)), None)


def _is_case(benchmark: Benchmark, row: Mapping) -> bool:
    """Whether a row is of a case and a phase that the benchmark can measure today."""
    try:
        cell = cell_of(benchmark, row)
    except (KeyError, ValueError):  # evidence of a version with other axes or sizes
        return False
    name = row["implementation"]
    if name not in benchmark.known or benchmark.not_applicable(cell, name) is not None:
        return False
    return row["phase"] in benchmark.phases_of(Case(tuple(cell.items()), name))


def _value(axis: Axis, value) -> Value:
    if absent(value):
        return ""
    if axis.aliases:  # frames have the short names of sizes
        return canonical(axis, plain(value))
    return plain(value) if axis.kind is str else axis.kind(value)
