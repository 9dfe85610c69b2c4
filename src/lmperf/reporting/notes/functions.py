"""The functions that expressions of notes may call; `docs/notes.md` describes them for authors.

Each reads a row that its arguments name: benchmark, implementation, phase and axes. A row on which
no sentence may rest (failed, stale, marked, unresolved) raises ``Unsound``, and the note that reads
it is left out.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lmperf.benchmark import Axis, Benchmark, Timed
from lmperf.benchmarks import load, stems
from lmperf.dtypes import dtype_of
from lmperf.names import STATUSES, in_order, mark_words, size_words
from lmperf.peers.table import PEERS
from lmperf.reporting import ceilings, gates, marks
from lmperf.reporting.evidence import MachineEvidence, having, row_names
from lmperf.reporting.foreign import plain
from lmperf.reporting.notes.expressions import Number, Values, WrongExpression
from lmperf.reporting.numbers import MIB, absent, listed, significant
from lmperf.reporting.speedup import Series, speedups
from lmperf.statistics import SAME, UNRESOLVED

_MOST_ROWS = 64
_MOST_LISTED = 12
MATMUL, DATA_SHEET = "matmul", "data_sheet"
# Type of a column -> types of the values that an expression may give for it, and their words.
_KINDS = {
    bool: (bool, "true or false"),
    str: (str, "a text in quotes"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
}


class NoRow(WrongExpression):
    """The machine has no row with the values that a call names."""


class Unsound(Exception):
    """The row exists, or will, but no sentence may rest on it; the message says why."""


class Reader:
    """Calls the functions of notes on the evidence of one machine, and records what they gave.

    Attributes:
        reasons: why rows that were read cannot carry a sentence; empty if all of them can.
        read: name of a function -> the numbers and verdicts that it gave.
    """

    def __init__(self, evidence: MachineEvidence):
        self._evidence = evidence
        self.reasons: list[str] = []
        self.read: dict[str, list[str]] = {}

    def __call__(self, name: str, given: Sequence[Any], named: Mapping[str, Any]) -> Values:
        """Call the function ``name``; NaN and "unresolved" stand for what an unsound row gives.

        An axis with a list of values makes a call for each of them.

        Raises:
            WrongExpression: the function, an argument, an axis or a value is unknown, or several
                rows match one call. NoRow: no row matches.
        """
        if name not in FUNCTIONS:
            raise WrongExpression(_unknown("function", name, FUNCTIONS))
        try:
            bound = inspect.signature(FUNCTIONS[name]).bind(self._evidence, *given, **named)
        except TypeError as error:
            raise WrongExpression(f"{name}: {error}") from None
        where = bound.arguments.pop("where", {})
        if any(isinstance(one, list) for one in bound.arguments.values()):
            raise WrongExpression(f"{name}: only axes and phases can be lists")
        several = [one if isinstance(one, list) else [one] for one in where.values()]
        if math.prod(map(len, several)) > _MOST_ROWS:
            raise WrongExpression(f"{name}: a call reads at most {_MOST_ROWS} rows")
        cells = [dict(zip(where, values, strict=True)) for values in itertools.product(*several)]
        return tuple(self._one(name, {**bound.arguments, **cell}) for cell in cells)

    def _one(self, name: str, arguments: dict[str, Any]) -> Number | str:
        try:
            found = FUNCTIONS[name](**arguments)
        except Unsound as reason:
            self.reasons.append(plain(str(reason)))
            return UNRESOLVED if name == "verdict" else Number.of(math.nan)
        except WrongExpression as error:
            raise type(error)(f"{name}: {plain(str(error))}") from None
        words = found if isinstance(found, str) else significant(found.value)
        self.read.setdefault(name, []).append(words)
        return found


def value(
    evidence: MachineEvidence, stem: str, implementation: str, column: str, **where: Any
) -> Number:
    """A number in a column of a row."""
    row = _row(evidence, stem, {"implementation": implementation, **where})
    _require_trusted(stem, row)
    return Number.of(_number(stem, row, column))


def speedup(
    evidence: MachineEvidence,
    stem: str,
    implementation: str,
    over: str | None = None,
    over_dtype: str | None = None,
    **where: Any,
) -> Number:
    """The speed-up of a row over the row of another implementation, dtype or both.

    Its interval includes 1 if the verdict is ``same``, so that a comparison with 1 agrees with the
    verdict.
    """
    found = _compared(evidence, stem, implementation, over, over_dtype, where)
    low, high = float(found["low"]), float(found["high"])
    if found["verdict"] == SAME:
        low, high = min(low, 1.0), max(high, 1.0)
    return Number(float(found["ratio"]), low, high)


def verdict(
    evidence: MachineEvidence,
    stem: str,
    implementation: str,
    over: str | None = None,
    over_dtype: str | None = None,
    **where: Any,
) -> str:
    """The verdict of a speed-up: faster, slower or same."""
    return _compared(evidence, stem, implementation, over, over_dtype, where)["verdict"]


def share(
    evidence: MachineEvidence, stem: str, implementation: str, of: str, **where: Any
) -> Number:
    """The achieved fraction of this machine's matmul ceiling, or of the peak of its data sheet."""
    if of not in (MATMUL, DATA_SHEET):
        raise WrongExpression(_unknown("ceiling", of, (MATMUL, DATA_SHEET)))
    row = _row(evidence, stem, {"implementation": implementation, **where})
    if "dtype" not in row or not isinstance(load(stem), Timed):
        raise WrongExpression(f"{stem} has no share of a ceiling")
    _require_trusted(stem, row)
    duration = ceilings.BURST
    if load(stem).clock == "step":
        duration = ceilings.SUSTAINED
        row = row.assign(median_ms=_number(stem, row, "sustained_ms"))
    if of == MATMUL:
        _require_fresh_ceiling(evidence, row["dtype"].iloc[0])
        found = ceilings.matmul_share(evidence, row, duration)
    else:
        found = ceilings.sheet_share(evidence, row)
    if absent(found.iloc[0]):
        raise Unsound(f"{_name(stem, row)}: no {of} ceiling or no FLOPs are known")
    return Number.of(found.iloc[0])


def peak(evidence: MachineEvidence, stem: str, implementation: str, **where: Any) -> Number:
    """The peak memory of a row in bytes. Marks do not count: they concern times."""
    row = _row(evidence, stem, {"implementation": implementation, **where})
    return Number.of(_number(stem, row, "peak_mib") * MIB)


FUNCTIONS: dict[str, Callable] = {
    function.__name__: function for function in (value, speedup, verdict, share, peak)
}


def _compared(
    evidence: MachineEvidence,
    stem: str,
    implementation: str,
    over: str | None,
    over_dtype: str | None,
    where: Mapping[str, Any],
) -> pd.Series:
    """The line of ``speedup.speedups`` of one row over another."""
    row = _row(evidence, stem, {"implementation": implementation, **where})
    if not isinstance(load(stem), Timed):
        raise WrongExpression(f"{stem} has no times to compare")
    differing = {"implementation": over, "dtype": over_dtype}
    differing = _checked(
        evidence, stem, {name: one for name, one in differing.items() if one is not None}
    )
    cell = {name: row[name].iloc[0] for name in load(stem).identity if name in row}
    ours = {name: cell[name] for name in differing}
    if ours == differing:
        raise WrongExpression("give over=, over_dtype= or both, other than the row's own")
    base = _single(evidence, stem, {**cell, **differing})
    for one in (row, base):
        _require_trusted(stem, one)
    found = speedups(evidence, stem, Series.of(**ours), Series.of(**differing))
    peer = listed(differing.values())
    if row.index[0] not in found.index:
        raise Unsound(f"{_name(stem, row)}: not timed in turn with {peer}")
    if found.loc[row.index[0], "verdict"] == UNRESOLVED:
        raise Unsound(f"{_name(stem, row)}: unresolved over {peer}")
    return found.loc[row.index[0]]


def _row(evidence: MachineEvidence, stem: str, where: Mapping[str, Any]) -> pd.DataFrame:
    """The one row that these values name, as a data frame. Raises NoRow, Unsound."""
    if stem not in stems():
        raise WrongExpression(_unknown("benchmark", stem, stems()))
    return _single(evidence, stem, _checked(evidence, stem, where))


def _single(evidence: MachineEvidence, stem: str, where: Mapping[str, Any]) -> pd.DataFrame:
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
        raise Unsound(f"{_name(stem, found)}: its check failed")
    if status != "ok":
        raise Unsound(f"{_name(stem, found)}: {STATUSES.get(status, status)}")
    _require_fresh(evidence, stem, found)
    return found


def _require_fresh(evidence: MachineEvidence, stem: str, row: pd.DataFrame) -> None:
    """Raise Unsound if the row is stale."""
    # There is a column only if some rows of the benchmark are stale and others are not.
    stale = row["stale"].iloc[0] if "stale" in row else bool(evidence.stale.get(stem))
    if stale:
        raise Unsound(f"{_name(stem, row)}: stale")


def _require_trusted(stem: str, row: pd.DataFrame) -> None:
    """Raise Unsound if the time of the row may not hold."""
    if marks.doubtful(row, stem).iloc[0]:
        names = marks.marks_of(row).iloc[0]
        raise Unsound(f"{_name(stem, row)}: {listed(map(mark_words, names))}")


def _require_fresh_ceiling(evidence: MachineEvidence, dtype: str) -> None:
    """Raise Unsound if a matmul of the ceilings in the numerics of ``dtype`` is stale."""
    rows = evidence.frame(ceilings.STEM)
    if rows is not None:
        for row in having(rows, operation=MATMUL, dtype=dtype_of(dtype).matmul).index:
            _require_fresh(evidence, ceilings.STEM, rows.loc[[row]])


def _number(stem: str, row: pd.DataFrame, column: str) -> float:
    """The number in a column of a row; raises Unsound if it is not recorded."""
    kinds = load(stem).kinds
    known = [name for name, kind in kinds.items() if kind in (int, float)]
    if column not in known:
        raise WrongExpression(_unknown("column of numbers", column, known))
    found = row[column].iloc[0] if column in row else math.nan
    if absent(found):
        raise Unsound(f"{_name(stem, row)}: no {column} is recorded")
    return float(found)


def _checked(evidence: MachineEvidence, stem: str, where: Mapping[str, Any]) -> dict[str, Any]:
    """The values as rows have them; raises WrongExpression for an unknown axis or value."""
    benchmark = load(stem)
    for name, one in where.items():
        if name not in benchmark.identity:
            raise WrongExpression(_unknown(f"axis of {stem}", name, benchmark.identity))
        axis = next((axis for axis in benchmark.axes if axis.name == name), None)
        kind = axis.kind if axis else benchmark.kinds[name]
        kinds, words = _KINDS[kind]
        if not isinstance(one, kinds) or (isinstance(one, bool) and kind is not bool):
            raise WrongExpression(f"{name} must be {words}")
        known = _known(evidence, benchmark, name, axis)
        if known and one not in known:
            raise WrongExpression(_unknown(name, one, known))
    return {name: size_words(one) if name == "size" else one for name, one in where.items()}


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
    return NoRow(words)


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


def _unknown(what: str, one: Any, known: Collection[str]) -> str:
    """The message that a name is unknown, with the nearest known names."""
    near = difflib.get_close_matches(str(one), [*known], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {listed(known)}"
    return f"no {what} {_written(one)}; {hint}"


def _name(stem: str, row: pd.DataFrame) -> str:
    return f"{stem}: {row_names(row)[0]}"
