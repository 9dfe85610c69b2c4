"""The functions that expressions of notes may call; `docs/notes.md` describes them for authors.

Each reads a row that its arguments name: benchmark, implementation, phase and axes. A row on which
no sentence may rest (failed, stale, marked, unresolved) raises ``Unsound``, and the note that reads
it is left out.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.dtypes import dtype_of
from lmperf.reporting import ceilings, gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.foreign import plain
from lmperf.reporting.notes.expressions import Number, Values, WrongExpression
from lmperf.reporting.notes.rows import (
    NoRow,
    Unsound,
    checked,
    name_of,
    number,
    require_fresh,
    require_trusted,
    require_unmarked,
    row_of,
    single,
    unknown,
)
from lmperf.reporting.numbers import MIB, absent, listed, significant
from lmperf.reporting.rounds import parse_rounds
from lmperf.reporting.speedup import Series, speedups
from lmperf.statistics import SAME, UNRESOLVED, median_interval

# Column of a median -> the column with the medians of its parts.
_ROUNDS = {"median_ms": "rounds_ms", "sustained_ms": "sustained_rounds_ms"}
_MOST_ROWS = 64
MATMUL, DATA_SHEET = "matmul", "data_sheet"


class Reader:
    """Calls the functions of notes on the evidence of one machine, and records what they gave.

    Attributes:
        reasons: why rows that were read cannot carry a sentence; empty if all of them can.
        lacks_rows: whether the machine has no row that a call names.
        read: name of a function -> the numbers and verdicts that it gave.
    """

    def __init__(self, evidence: MachineEvidence, general: bool):
        self._evidence = evidence
        self._general = general
        self.reasons: list[str] = []
        self.lacks_rows = False
        self.read: dict[str, list[str]] = {}

    def __call__(self, name: str, given: Sequence[Any], named: Mapping[str, Any]) -> Values:
        """Call the function ``name``; NaN and "unresolved" stand for what an unsound row gives.

        An axis with a list of values makes a call for each of them.

        Raises:
            WrongExpression: the function, an argument, an axis or a value is unknown, or several
                rows match one call. In a note for every machine, any number is a known value.
        """
        if name not in FUNCTIONS:
            raise WrongExpression(unknown("function", name, FUNCTIONS))
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
        except NoRow as reason:
            if not (reason.known or self._general):
                raise WrongExpression(f"{name}: {plain(str(reason))}") from None
            self.lacks_rows = True
            return self._not_known(name, reason)
        except Unsound as reason:
            return self._not_known(name, reason)
        except WrongExpression as error:
            raise WrongExpression(f"{name}: {plain(str(error))}") from None
        words = found if isinstance(found, str) else significant(found.value)
        self.read.setdefault(name, []).append(words)
        return found

    def _not_known(self, name: str, reason: Exception) -> Number | str:
        self.reasons.append(plain(str(reason)))
        return UNRESOLVED if name == "verdict" else Number.of(math.nan)


def value(
    evidence: MachineEvidence, stem: str, implementation: str, column: str, **where: Any
) -> Number:
    """A number in a column of a row; a median time has its confidence interval."""
    row = row_of(evidence, stem, {"implementation": implementation, **where})
    require_trusted(stem, row)
    found = number(stem, row, column)
    if column not in _ROUNDS or absent(row[_ROUNDS[column]].iloc[0]):
        return Number.of(found)
    low, high = (float(end[0]) for end in median_interval(parse_rounds(row[_ROUNDS[column]])))
    return Number(found, min(low, found), max(high, found))


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
        raise WrongExpression(unknown("ceiling", of, (MATMUL, DATA_SHEET)))
    row = row_of(evidence, stem, {"implementation": implementation, **where})
    if "dtype" not in row or not isinstance(load(stem), Timed):
        raise WrongExpression(f"{stem} has no share of a ceiling")
    column, duration = "median_ms", ceilings.BURST
    if load(stem).clock == "step":
        column, duration = "sustained_ms", ceilings.SUSTAINED
    time = value(evidence, stem, implementation, column, **where)
    row = row.assign(median_ms=time.value)
    if of == MATMUL:
        _require_sound_ceiling(evidence, row["dtype"].iloc[0], duration)
        found = ceilings.matmul_share(evidence, row, duration).iloc[0]
    else:
        found = ceilings.sheet_share(evidence, row).iloc[0]
    if absent(found):
        raise Unsound(f"{name_of(stem, row)}: no {of} ceiling or no FLOPs are known")
    return Number(found, found * time.value / time.high, found * time.value / time.low)


def peak(evidence: MachineEvidence, stem: str, implementation: str, **where: Any) -> Number:
    """The peak memory of a row in bytes. Marks do not count: they concern times."""
    row = row_of(evidence, stem, {"implementation": implementation, **where})
    return Number.of(number(stem, row, "peak_mib") * MIB)


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
    row = row_of(evidence, stem, {"implementation": implementation, **where})
    if not isinstance(load(stem), Timed):
        raise WrongExpression(f"{stem} has no times to compare")
    differing = {"implementation": over, "dtype": over_dtype}
    differing = checked(
        evidence, stem, {name: one for name, one in differing.items() if one is not None}
    )
    cell = {name: row[name].iloc[0] for name in load(stem).identity if name in row}
    ours = {name: cell[name] for name in differing}
    if ours == differing:
        raise WrongExpression("give over=, over_dtype= or both, other than the row's own")
    base = single(evidence, stem, {**cell, **differing})
    for one in (row, base):
        require_trusted(stem, one)
    found = speedups(evidence, stem, Series.of(**ours), Series.of(**differing))
    peer = listed(differing.values())
    if row.index[0] not in found.index:
        raise Unsound(
            f"{name_of(stem, row)}: not timed in turn with {peer}, nor back to back on one GPU"
        )
    if found.loc[row.index[0], "verdict"] == UNRESOLVED:
        raise Unsound(f"{name_of(stem, row)}: unresolved over {peer}")
    return found.loc[row.index[0]]


def _require_sound_ceiling(evidence: MachineEvidence, dtype: str, duration: str) -> None:
    """Raise Unsound if the matmul that gives the ceiling of ``dtype`` is stale or disturbed.

    At the power limit it is neither: that is what the device sustains.
    """
    rows = ceilings.rows(evidence)
    if rows is None:
        return
    rows = having(rows, operation=MATMUL, dtype=dtype_of(dtype).matmul)
    if rows["load"].notna().any():
        rows = having(rows, load=duration)
    best = rows[gates.shown(rows)].nlargest(1, "rate")
    if not best.empty:
        require_fresh(ceilings.STEM, best)
        require_unmarked(ceilings.STEM, best, marks.disturbed(best))
