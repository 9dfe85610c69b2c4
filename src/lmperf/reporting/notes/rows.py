"""Find the row that a call in a note names, or say why no sentence may rest on it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lmperf.benchmark import Axis, Benchmark
from lmperf.benchmarks import load, stems
from lmperf.names import STATUSES, in_order, mark_words, size_words
from lmperf.peers.table import PEERS
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having, row_names
from lmperf.reporting.notes.expressions import WrongExpression
from lmperf.reporting.numbers import absent, listed

_MOST_LISTED = 12
# Type of a column -> types of the values that an expression may give for it, and their words.
_KINDS = {
    bool: (bool, "true or false"),
    str: (str, "a text in quotes"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
}


class Unsound(Exception):
    """The row exists, or will, but no sentence may rest on it; the message says why."""


class NoRow(Exception):
    """The machine has no row with the values that a call names.

    Attributes:
        known: whether each value is one of a row or of the grids, so that it is not misspelt.
    """

    def __init__(self, message: str, known: bool):
        super().__init__(message)
        self.known = known


def row_of(evidence: MachineEvidence, stem: str, where: Mapping[str, Any]) -> pd.DataFrame:
    """The one row that these values name, as a data frame. Raises NoRow, Unsound."""
    if stem not in stems():
        raise WrongExpression(unknown("benchmark", stem, stems()))
    return single(evidence, stem, checked(evidence, stem, where))


def single(evidence: MachineEvidence, stem: str, where: Mapping[str, Any]) -> pd.DataFrame:
    """The one row with these values, which are as in rows. Raises NoRow, Unsound."""
    frame = evidence.frame(stem)
    if frame is None or not set(where) <= set(frame.columns):
        raise _absence(evidence, stem, where, f"this machine has no such rows of {stem}")
    found = having(frame, **where)
    if found.empty:
        raise _absence(evidence, stem, where, _nearest(frame, where))
    if len(found) > 1:
        raise WrongExpression(_ambiguous(stem, found))
    status = found["status"].iloc[0]
    if gates.red(found).iloc[0]:
        raise Unsound(f"{name_of(stem, found)}: its check failed")
    if status != "ok":
        raise Unsound(f"{name_of(stem, found)}: {STATUSES.get(status, status)}")
    require_fresh(stem, found)
    return found


def require_fresh(stem: str, row: pd.DataFrame) -> None:
    """Raise Unsound if the row is stale."""
    # There is a column only if some rows of the benchmark are stale.
    if "stale" in row and row["stale"].iloc[0]:
        raise Unsound(f"{name_of(stem, row)}: stale")


def require_trusted(stem: str, row: pd.DataFrame) -> None:
    """Raise Unsound if the time of the row may not hold."""
    require_unmarked(stem, row, marks.doubtful(row, stem))


def require_unmarked(stem: str, row: pd.DataFrame, marked: pd.Series) -> None:
    """Raise Unsound, with the marks of the row, if it is ``marked``."""
    if marked.iloc[0]:
        names = marks.marks_of(row).iloc[0]
        raise Unsound(f"{name_of(stem, row)}: {listed(map(mark_words, names))}")


def number(stem: str, row: pd.DataFrame, column: str) -> float:
    """The number in a column of a row; raises Unsound if it is not recorded."""
    kinds = load(stem).kinds
    known = [name for name, kind in kinds.items() if kind in (int, float)]
    if column not in known:
        raise WrongExpression(unknown("column of numbers", column, known))
    found = row[column].iloc[0] if column in row else math.nan
    if absent(found):
        raise Unsound(f"{name_of(stem, row)}: no {column} is recorded")
    return float(found)


def checked(evidence: MachineEvidence, stem: str, where: Mapping[str, Any]) -> dict[str, Any]:
    """The values as rows have them; raises WrongExpression for an unknown axis or value."""
    benchmark = load(stem)
    for name, one in where.items():
        if name not in benchmark.identity:
            raise WrongExpression(unknown(f"axis of {stem}", name, benchmark.identity))
        axis = next((axis for axis in benchmark.axes if axis.name == name), None)
        kind = axis.kind if axis else benchmark.kinds[name]
        kinds, words = _KINDS[kind]
        if not isinstance(one, kinds) or (isinstance(one, bool) and kind is not bool):
            raise WrongExpression(f"{name} must be {words}")
        known = _known(evidence, benchmark, name, axis)
        if known and one not in known:
            raise WrongExpression(unknown(name, one, known))
    return {name: _as_in_rows(name, one) for name, one in where.items()}


def _as_in_rows(name: str, one: Any) -> Any:
    """A value of an axis as rows have it; a size may be an alias."""
    return size_words(one) if name == "size" else one


def _known(
    evidence: MachineEvidence, benchmark: Benchmark, name: str, axis: Axis | None
) -> list[str]:
    """The texts that are valid in a column; empty if any text or number is."""
    if name == "phase":
        return [*benchmark.phases]
    if name == "implementation":
        grids = (grid for grids in benchmark.grids.values() for grid in grids)
        known = {name for grid in grids for name in grid["implementation"]}
        peers = {name for name, peer in PEERS.items() if benchmark.stem in peer.benchmarks}
        frame = evidence.frame(benchmark.stem)
        measured = set() if frame is None else {*frame["implementation"]}
        return in_order(name, {*known, *peers, *benchmark.known, *measured})
    if axis is None or not axis.choices:
        return []
    short = [size_words(one) for one in axis.choices] if name == "size" else []
    return [*dict.fromkeys([*short, *axis.choices, *axis.aliases])]


def _absence(
    evidence: MachineEvidence, stem: str, where: Mapping[str, Any], words: str
) -> Unsound | NoRow:
    """Why rows are absent: Unsound if they are only not measured (yet), else NoRow."""
    if stem in evidence.damaged:
        return Unsound(f"{stem}: its evidence is damaged")
    lacking = evidence.lacking.get(stem)
    known = {n: v for n, v in where.items() if lacking is not None and n in lacking}
    if known and not having(lacking, **known).empty:
        return Unsound(f"{stem}: not measured yet")
    if stem in evidence.left_out:
        return Unsound(f"{stem}: {evidence.left_out[stem]}")
    frame = evidence.frame(stem)
    return NoRow(words, all(_is_known(load(stem), frame, *one) for one in where.items()))


def _is_known(benchmark: Benchmark, frame: pd.DataFrame | None, name: str, one: Any) -> bool:
    """Whether a row or a grid has this value; ``checked`` has checked names and choices."""
    if name in ("implementation", "phase") or (frame is not None and one in {*frame.get(name, ())}):
        return True
    grids = [grid for grids in benchmark.grids.values() for grid in grids if name in grid]
    return not grids or one in {_as_in_rows(name, other) for grid in grids for other in grid[name]}


def _nearest(frame: pd.DataFrame, where: Mapping[str, Any]) -> str:
    """Which value excludes the last rows, and which values those rows have."""
    rows = frame
    for name, one in where.items():
        left = having(rows, **{name: one})
        if left.empty:
            return f"no row with {name}={_written(one)}; there is {_values(name, rows)}"
        rows = left
    raise AssertionError("a row has all of these values")


def _ambiguous(stem: str, rows: pd.DataFrame) -> str:
    """The message that several rows match, with the axes that tell them apart."""
    names = [n for n in load(stem).identity if n in rows and rows[n].nunique(dropna=False) > 1]
    return f"{len(rows)} rows match; also give {'; '.join(_values(name, rows) for name in names)}"


def _values(name: str, rows: pd.DataFrame) -> str:
    """An axis with the values that rows have: ``d_head=64, 128``."""
    found = [_written(one) for one in in_order(name, rows[name])]
    more = ", ..." if len(found) > _MOST_LISTED else ""
    return f"{name}={', '.join(found[:_MOST_LISTED])}{more}"


def _written(one: Any) -> str:
    """A value as an expression writes it."""
    if isinstance(one, str):
        return f'"{one}"'
    return str(one).lower() if isinstance(one, bool | np.bool_) else str(one)


def unknown(what: str, one: Any, known: Collection[str]) -> str:
    """The message that a name is unknown, with the nearest known names."""
    near = difflib.get_close_matches(str(one), [*known], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {listed(known)}"
    return f"no {what} {_written(one)}; {hint}"


def name_of(stem: str, row: pd.DataFrame) -> str:
    """The benchmark and the row in one line."""
    return f"{stem}: {row_names(row)[0]}"
